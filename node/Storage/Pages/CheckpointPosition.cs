namespace KvCluster.Storage.Pages;

/// <summary>What a checkpoint covers; all zero for a store without one.</summary>
/// <param name="Etag">The last change in it.</param>
/// <param name="Position">Where replay continues.</param>
/// <param name="ChainChecksum">Body checksum of the record that ends with <paramref name="Etag"/>.</param>
internal readonly record struct CheckpointPosition(UInt128 Etag, JournalPosition Position, uint ChainChecksum);

/// <summary>Where the next record to replay starts.</summary>
/// <param name="Segment">Number of the segment file.</param>
/// <param name="Offset">Byte offset in it.</param>
internal readonly record struct JournalPosition(ulong Segment, long Offset);
