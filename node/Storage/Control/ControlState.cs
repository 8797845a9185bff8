namespace KvCluster.Storage.Control;

/// <summary>
/// A replica's hard state (its promises) and identity, as stored in its control file (FORMAT.md, "Control file"). Immutable: a change is a <c>with</c>
/// copy, which holds only after it was written and synced.
/// </summary>
internal sealed record ControlState
{
    /// <summary>The replica's random, non-zero id. It belongs to the directory.</summary>
    public required ReplicaId ReplicaId { get; init; }

    /// <summary>The shard that the directory belongs to.</summary>
    public required ShardId Shard { get; init; }

    /// <summary>Frames of a lower epoch are rejected.</summary>
    public ulong PromisedEpoch { get; init; }

    /// <summary>Id of the replica that leads the promised epoch; 0 = unknown.</summary>
    public ReplicaId PromisedLeader { get; init; }

    /// <summary>The process incarnation of that leader; 0 = unknown.</summary>
    public ulong PromisedIncarnation { get; init; }

    /// <summary>The lesser of the committed and the durable etag, so never beyond this replica's journal. Recovery applies records up to it.</summary>
    public Etag Committed { get; init; }

    /// <summary>An etag that this replica has acknowledged. A journal that ends before it has lost records (S4). Lowered before a truncation.</summary>
    public Etag Acknowledged { get; init; }

    /// <summary>Last seen generation of the shard's record.</summary>
    public ulong Generation { get; init; }

    /// <summary>Last seen revision of the coordinator.</summary>
    public long CoordinatorRevision { get; init; }

    /// <summary>The number of recoveries in the shard's record last seen. It precedes the revision.</summary>
    public ulong Recovery { get; init; }

    /// <summary>Longest lease that this replica has ever granted, in milliseconds. After a restart the replica waits for it to expire.</summary>
    public long LeaseLongestMs { get; init; }

    /// <summary>Whether the replica was removed from its shard and must not take part again.</summary>
    public bool Removed { get; init; }

    /// <summary>Hash of the cluster's name and creation, so that a directory does not join another cluster.</summary>
    public ulong ClusterHash { get; init; }

    /// <summary>The part of it that never changes.</summary>
    public StoreIdentity Identity => new(ReplicaId, Shard, ClusterHash);
}
