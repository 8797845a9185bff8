namespace KvCluster.Replication.Protocol;

/// <summary>
/// What a replica must not forget: its promises and identity, as kept in its control file. The protocol counts a promise from the moment
/// it is synced, never from the moment it is written.
/// </summary>
internal sealed record HardState
{
    /// <summary>Random, non-zero, the one that the shard's record names.</summary>
    public required ulong ReplicaId { get; init; }

    /// <summary>Nothing of a lower epoch is obeyed.</summary>
    public ulong PromisedEpoch { get; init; }

    /// <summary>The leader of that epoch: replica id, or 0 if only the epoch is known.</summary>
    public ulong PromisedLeader { get; init; }

    /// <summary>The process incarnation of that leader.</summary>
    public ulong PromisedIncarnation { get; init; }

    /// <summary>Committed and durable here; recovery applies up to it. Lags behind what is known in memory, never ahead of the journal.</summary>
    public Etag Committed { get; init; }

    /// <summary>A journal that ends before this has lost records that a leader may have counted. Lags behind too.</summary>
    public Etag Acknowledged { get; init; }

    /// <summary>Generation and revision of the shard's record last seen.</summary>
    public ulong Generation { get; init; }

    /// <inheritdoc cref="Generation"/>
    public long CoordinatorRevision { get; init; }

    /// <summary>The longest grant ever given, drift included. A restarted replica waits that long before it prepares or stands.</summary>
    public long LeaseLongestUs { get; init; }

    /// <summary>The shard's record no longer names this replica; it never takes part again.</summary>
    public bool Removed { get; init; }
}
