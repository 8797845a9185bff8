namespace KvCluster.Client;

/// <summary>How new a read must be, and which replicas may serve it.</summary>
public enum KvReadMode
{
    /// <summary>Linearizable, at the leader, under its lease: reflects every change acknowledged before the call.</summary>
    Leader,

    /// <summary>Linearizable, at the leader, and without trust in any clock: a majority of the replicas confirms that it leads. Costs a round trip between nodes.</summary>
    Quorum,

    /// <summary>Linearizable, at any replica, which asks the leader first: spreads the work of reads. Costs a round trip between nodes.</summary>
    Replica,

    /// <summary>
    /// At any replica that has what this client was answered before (<see cref="KvClient.Observe"/>): the client sees its own changes and never goes
    /// back in time, but others' newest changes perhaps not. A replica that is behind is waited for, then the leader is asked.
    /// </summary>
    Session,

    /// <summary>At any replica, at once; <see cref="GetResult.Age"/> says how old the answer may be. Also while the shard has no leader.</summary>
    Stale,
}
