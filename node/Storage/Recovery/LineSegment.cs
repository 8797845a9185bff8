using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>A segment of the line.</summary>
/// <param name="Header">Its header.</param>
/// <param name="Bytes">Its file's length.</param>
internal readonly record struct LineSegment(SegmentHeader Header, long Bytes);
