namespace KvCluster.Simulation.Cluster;

/// <summary>What a read of whole replicas was answered.</summary>
/// <param name="Etag">Of the snapshot.</param>
/// <param name="Found">Under the keys asked for.</param>
/// <param name="OpenedUs">When the age was taken, in the run's time.</param>
/// <param name="AgeUs">How out of date the replica says it may be, by its own clock; null: it does not say.</param>
internal sealed record ClusterRead(Etag Etag, CommittedLog.Version[] Found, long OpenedUs, ulong? AgeUs)
{
    /// <summary>For a transcript.</summary>
    public string Shown => string.Join(' ', Found.Select(static found => found.Exists ? $"{ClusterData.WriteOf(found.Value)}" : "-"));
}

/// <summary>How new a caller wants a read to be, and who may serve it.</summary>
internal enum ReadKind
{
    /// <summary>Linearizable, by the leader's lease, or by a round without one.</summary>
    Leader,

    /// <summary>Linearizable, by a round.</summary>
    Quorum,

    /// <summary>Linearizable, at any replica, which asks its leader.</summary>
    Replica,

    /// <summary>Not older than what the caller has seen.</summary>
    Session,

    /// <summary>Whatever is there, with its age.</summary>
    Stale,
}

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
