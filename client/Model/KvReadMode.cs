namespace KvCluster.Client;

/// <summary>How up to date a read must be, and which replicas may serve it.</summary>
public enum KvReadMode
{
    /// <summary>Linearizable, served by the leader under its lease. Reflects every change acknowledged before the call.</summary>
    Leader,

    /// <summary>
    /// Linearizable, served by the leader, without trusting any clock: a majority of the replicas confirms that it leads. Costs a round trip between nodes.
    /// </summary>
    Quorum,

    /// <summary>Linearizable, served by any replica, which asks the leader first. Spreads the load of reads. Costs a round trip between nodes.</summary>
    Replica,

    /// <summary>
    /// Served by any replica that has everything this client has seen (<see cref="KvClient.Observe"/>). The client sees its own changes and never goes back
    /// in time, but may miss the newest changes of others. If a replica is behind, the client waits for it and then asks the leader.
    /// </summary>
    Session,

    /// <summary>Served by any replica at once, also while the shard has no leader. <see cref="GetResult.Age"/> says how old the answer may be.</summary>
    Stale,
}
