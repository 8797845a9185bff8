namespace KvCluster.Storage.Control;

/// <summary>
/// A replica's promises and identity, as its control file holds them (FORMAT.md, "Control file"). Immutable: a change is a
/// <c>with</c> copy that is true only after it was written and synced.
/// </summary>
internal sealed record ControlState
{
    /// <summary>The replica's random, non-zero id: the replica is its directory.</summary>
    public required ulong ReplicaId { get; init; }

    /// <summary>The shard that the directory belongs to.</summary>
    public required uint Shard { get; init; }

    /// <summary>No frame of a lower epoch is obeyed.</summary>
    public ulong PromisedEpoch { get; init; }

    /// <summary>The replica id that leads the promised epoch; 0 = unknown.</summary>
    public ulong PromisedLeader { get; init; }

    /// <summary>The process incarnation of that leader; 0 = unknown.</summary>
    public ulong PromisedIncarnation { get; init; }

    /// <summary>The lesser of committed and durable: recovery applies up to it.</summary>
    public UInt128 Committed { get; init; }

    /// <summary>The last etag that this replica has acknowledged; lowered before a cut.</summary>
    public UInt128 Acknowledged { get; init; }

    /// <summary>Generation of the shard's record last seen.</summary>
    public ulong Generation { get; init; }

    /// <summary>The coordinator's revision last seen.</summary>
    public long CoordinatorRevision { get; init; }

    /// <summary>Longest lease this replica has ever granted, in milliseconds; a restarted replica waits it out.</summary>
    public long LeaseLongestMs { get; init; }

    /// <summary>The replica was taken out of its shard and must not take part again.</summary>
    public bool Removed { get; init; }

    /// <summary>Hash of the cluster's name and creation, so that a directory does not join another cluster.</summary>
    public ulong ClusterHash { get; init; }

    /// <summary>What of it never changes.</summary>
    public StoreIdentity Identity => new(ReplicaId, Shard, ClusterHash);
}
