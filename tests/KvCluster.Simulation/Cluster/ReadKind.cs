namespace KvCluster.Simulation.Cluster;

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
