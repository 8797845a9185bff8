namespace KvCluster.Storage.Pages;

/// <summary>Where the next record to replay starts.</summary>
/// <param name="Segment">Number of the segment file.</param>
/// <param name="Offset">Byte offset in it.</param>
internal readonly record struct JournalPosition(ulong Segment, long Offset);
