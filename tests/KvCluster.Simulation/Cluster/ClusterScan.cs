namespace KvCluster.Simulation.Cluster;

/// <summary>What a caller asks of a scan.</summary>
/// <param name="Lower">The first key, inclusive.</param>
/// <param name="Upper">The end, exclusive.</param>
/// <param name="Reverse">From the last key to the first.</param>
/// <param name="CountMax">Most entries.</param>
internal sealed record ScanRange(string Lower, string Upper, bool Reverse, int CountMax);

/// <summary>What a scan of one snapshot was answered, page by page.</summary>
/// <param name="Etag">Of the snapshot.</param>
/// <param name="Entries">Keys with what is under them, in the order in which they came.</param>
internal sealed record ClusterScan(Etag Etag, IReadOnlyList<(string Key, CommittedLog.Version Found)> Entries);
