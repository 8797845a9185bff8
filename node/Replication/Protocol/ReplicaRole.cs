namespace KvCluster.Replication.Protocol;

/// <summary>What a replica does, as shown in status.</summary>
internal enum ReplicaRole
{
    Follower,

    /// <summary>Campaigning or preparing, or its epoch-open record is not committed yet.</summary>
    Candidate,

    Leader,

    /// <summary>Does not vote according to the shard's record.</summary>
    Learner,

    /// <summary>Lost records that it had acknowledged. It follows, but does not count until it has them again.</summary>
    Recovering,

    /// <summary>Removed, or halted on a broken invariant.</summary>
    Stopped,
}
