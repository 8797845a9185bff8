namespace KvCluster.Node.Watching;

/// <summary>The bounds of the watchers of a shard.</summary>
/// <param name="JournalBytesMax">Bytes of journal that are kept for those that lag.</param>
/// <param name="KeptBytesMax">Bytes of decoded events that are kept in memory. Asked for with each record; under a lock, so it must not block.</param>
internal sealed record WatchLimits(long JournalBytesMax, Func<long> KeptBytesMax);
