namespace KvCluster;

/// <summary>
/// What a replica must not forget: its promises and identity, as kept in its control file. The protocol counts a promise from the moment it is synced,
/// never from the moment it is written. Immutable: a change is a <c>with</c> copy, which is still the state of a store if the original was.
/// </summary>
internal record HardState
{
    /// <summary>Random, non-zero; the id that the shard's record names.</summary>
    public required ReplicaId ReplicaId { get; init; }

    /// <summary>Nothing of a lower epoch is accepted.</summary>
    public ulong PromisedEpoch { get; init; }

    /// <summary>The replica id of that epoch's leader, or 0 if only the epoch is known.</summary>
    public ReplicaId PromisedLeader { get; init; }

    /// <summary>The process incarnation of that leader; 0 = unknown.</summary>
    public ulong PromisedIncarnation { get; init; }

    /// <summary>Committed and durable here, so never beyond this replica's journal; recovery applies up to it. May lag behind the value in memory.</summary>
    public Etag Committed { get; init; }

    /// <summary>
    /// A journal that ends before this has lost records that a leader may have counted (S4). Lowered before a truncation. May lag behind the value in memory.
    /// </summary>
    public Etag Acknowledged { get; init; }

    /// <summary>Generation and revision of the shard's record last seen.</summary>
    public ulong Generation { get; init; }

    /// <inheritdoc cref="Generation"/>
    public long CoordinatorRevision { get; init; }

    /// <summary>The number of recoveries in that record, which precedes the revision.</summary>
    public ulong Recovery { get; init; }

    /// <summary>The longest grant ever given, drift included. A restarted replica waits that long before it prepares or campaigns.</summary>
    public long LeaseLongestUs { get; init; }

    /// <summary>The shard's record no longer names this replica. It never takes part again.</summary>
    public bool Removed { get; init; }
}
