namespace KvCluster.Replication.Protocol;

/// <summary>What a replica does, as status shows it.</summary>
internal enum ReplicaRole
{
    Follower,

    /// <summary>Standing, preparing, or its epoch-open record is not committed yet.</summary>
    Candidate,

    Leader,

    /// <summary>Does not vote by the shard's record.</summary>
    Learner,

    /// <summary>Lost records that it had acknowledged; follows, but does not count until it has them again.</summary>
    Recovering,

    /// <summary>Removed, or halted on a broken invariant.</summary>
    Stopped,
}
