namespace KvCluster.Storage;

/// <summary>What a <see cref="KvStore"/> uses. The values are of about the same moment.</summary>
/// <param name="DataBytes">Length of the data file.</param>
/// <param name="JournalBytes">Length of the journal's segments, in use or kept for reuse.</param>
/// <param name="ChangedBytes">Memory of changed pages that the next checkpoint writes, or that snapshots still need.</param>
/// <param name="PinnedBytes">Bytes of memory and of the data file that open snapshots and backups keep from being reused.</param>
/// <param name="OpenSnapshots">Open snapshots.</param>
/// <param name="Trees">Trees.</param>
public readonly record struct KvStoreStatistics(long DataBytes, long JournalBytes, long ChangedBytes, long PinnedBytes, int OpenSnapshots, int Trees);
