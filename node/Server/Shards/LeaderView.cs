using KvCluster.Internal.V1;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Progress;

namespace KvCluster.Node.Shards;

/// <summary>
/// What a leader knows of its shard's replicas at one moment. Decisions about leaders and placement use this, and not the status that is shown to people.
/// Immutable.
/// </summary>
/// <param name="Replica">The leader's replica.</param>
/// <param name="Epoch">Its epoch.</param>
/// <param name="Committed">The committed etag.</param>
/// <param name="IsQuiescent">The leader is quiescent, so it rarely hears from the others.</param>
/// <param name="Record">The shard's record.</param>
/// <param name="Followers">The other replicas; none if it does not lead.</param>
internal sealed record LeaderView(ReplicaId Replica, ulong Epoch, Etag Committed, bool IsQuiescent, ShardRecord Record, IReadOnlyList<FollowerView> Followers)
{
    /// <summary>The newest comparison of the voters' digests in this epoch, if it found no difference; null if it found one, or there was none.</summary>
    public DigestsCompared? DigestsAgree { get; init; }
}

/// <summary>A follower as its leader sees it.</summary>
/// <param name="Replica">The follower's replica.</param>
/// <param name="Node">Its node.</param>
/// <param name="State">What it is sent.</param>
/// <param name="Acknowledged">It has everything up to here.</param>
internal sealed record FollowerView(ReplicaId Replica, NodeId Node, FollowerState State, Etag Acknowledged)
{
    /// <inheritdoc cref="FollowerProgress.FollowsClosely"/>
    public bool FollowsClosely { get; init; }

    /// <summary>Time since its last answer.</summary>
    public long SilentUs { get; init; }

    /// <summary>By its last message, its disk is slow or full or its tree is doubted.</summary>
    public bool DiskImpaired { get; init; }

    /// <summary>Size of a snapshot that is sent; 0 if none is.</summary>
    public long SnapshotBytes { get; init; }

    /// <summary>How much it has stored of a snapshot that is sent.</summary>
    public long SnapshotStored { get; init; }

    /// <summary>How much of a stored snapshot it has verified.</summary>
    public long SnapshotVerified { get; init; }
}
