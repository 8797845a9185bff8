namespace KvCluster.Simulation.Cluster;

/// <summary>The answer to a read of whole replicas.</summary>
/// <param name="Etag">The etag of the snapshot.</param>
/// <param name="Found">The versions of the keys.</param>
/// <param name="OpenedUs">When the age was taken, in the run's time.</param>
/// <param name="AgeUs">How out of date the replica may be, by its own clock. Null if it does not say.</param>
internal sealed record ClusterRead(Etag Etag, CommittedLog.Version[] Found, long OpenedUs, ulong? AgeUs)
{
    /// <summary>The values as text, for a transcript.</summary>
    public string Shown => string.Join(' ', Found.Select(static found => found.Exists ? $"{ClusterData.WriteOf(found.Value)}" : "-"));
}

/// <summary>How recent a read must be, and which replica may serve it.</summary>
internal enum ReadKind
{
    /// <summary>Linearizable, under the leader's lease, or by a round without one.</summary>
    Leader,

    /// <summary>Linearizable, by a round.</summary>
    Quorum,

    /// <summary>Linearizable, at any replica, which asks its leader.</summary>
    Replica,

    /// <summary>Not older than what the caller has seen.</summary>
    Session,

    /// <summary>Whatever the replica has, with its age.</summary>
    Stale,
}

/// <summary>The arguments of a scan.</summary>
/// <param name="Lower">The first key, inclusive.</param>
/// <param name="Upper">The end, exclusive.</param>
/// <param name="Reverse">From the last key to the first.</param>
/// <param name="CountMax">The maximum number of entries.</param>
internal sealed record ScanRange(string Lower, string Upper, bool Reverse, int CountMax);

/// <summary>The answer to a scan of one snapshot, page by page.</summary>
/// <param name="Etag">The etag of the snapshot.</param>
/// <param name="Entries">Keys with their versions, in the order in which they arrived.</param>
internal sealed record ClusterScan(Etag Etag, IReadOnlyList<(string Key, CommittedLog.Version Found)> Entries);
