// The steps of a replacement, as functions of the shard's record, the request, the leader's view of its followers, and clock readings. No I/O and no waiting;
// ReplacementExecution in a node, and the simulation, add those. Any thread.
using KvCluster.Internal.V1;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Loop;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Placement;

/// <summary>
/// The plan of one replacement: its steps, given the record. An interrupted replacement is resumed by planning it again. Which replicas are moved, and to which
/// nodes: <see cref="MoveSelection.InOrder"/>.
/// </summary>
internal sealed class ReplacementPlan
{
    private readonly int _replicationFactor;
    private readonly NodeId _toNode;
    private readonly ReplicaRecord? _old;

    /// <param name="record">The shard's record, for which <see cref="Foresee"/> returned null.</param>
    /// <param name="request">What is asked for.</param>
    /// <param name="replicationFactor">Number of voters that each shard of the cluster should have.</param>
    public ReplacementPlan(ShardRecord record, ReplacementRequest request, int replicationFactor)
    {
        var there = record.Replicas.FirstOrDefault(replica => replica.NodeId == request.From);
        (_replicationFactor, _toNode, Lost) = (replicationFactor, request.To, LostOf(there, request));
        Replicas = [.. record.Replicas.Where(replica => replica.ReplicaId != Lost)];
        // With no old replica, a new one may be added where a voter is missing.
        _old = Lost.IsNone && there is { Learner: false } ? there : null;
        Leaves = _old?.ReplicaId ?? Lost;
        Learner = _toNode.IsNone ? ReplicaId.None : LearnerOn(record, _toNode, Lost);
        if (_toNode.IsNone)
            (Removal, RemovesLearner) = (new ReplicaChange.Remove(there!.ReplicaId), true);
        else if (!Lost.IsNone && Replicas.Count(static replica => !replica.Learner) >= replicationFactor)
            Removal = new ReplicaChange.Remove(Lost);
    }

    /// <summary>The single change that completes the replacement, if nothing replaces what leaves; null otherwise.</summary>
    public ReplicaChange? Removal { get; }

    /// <summary><see cref="Removal"/> is only valid while the replica does not vote.</summary>
    public bool RemovesLearner { get; }

    /// <summary>The learner that should become a voter, if it is in the record already; else 0.</summary>
    public ReplicaId Learner { get; }

    /// <summary>The lost replica that leaves; 0: none.</summary>
    public ReplicaId Lost { get; }

    /// <summary>The replica that should no longer be in the record; 0: none.</summary>
    public ReplicaId Leaves { get; }

    /// <summary>The replicas in the record, without the lost one.</summary>
    public IReadOnlyList<ReplicaRecord> Replicas { get; }

    /// <summary>Learners left by an abandoned change, whose nodes may never come back. They are removed before another learner is added.</summary>
    public IEnumerable<ReplicaRecord> Orphans(Func<NodeId, bool> isAway) => Replicas.Where(replica => replica.Learner && isAway(replica.NodeId));

    /// <summary>Why no learner may be added now; null if one may.</summary>
    /// <param name="removed">Orphans that were removed.</param>
    public string? WhyNoLearner(IReadOnlyCollection<ReplicaId> removed) =>
        _old is null && Replicas.FirstOrDefault(replica => replica.Learner && !removed.Contains(replica.ReplicaId)) is { } other
            ? $"the learner on node {other.Node} is to become a voter there"
            : null;

    /// <summary>The change that adds the new replica and removes a lost one.</summary>
    /// <param name="learner">An id never used before.</param>
    /// <param name="operation">The operation that it is a step of, for whoever leads next; 0: none.</param>
    public ReplicaChange Add(ReplicaId learner, ulong operation = 0) =>
        new ReplicaChange.AddLearner(learner, _toNode, Lost, operation, _old?.NodeId ?? NodeId.None);

    /// <summary>The replacement that a learner of a record is a step of, for a new leader that resumes it.</summary>
    public static ReplacementRequest Resumed(ShardId shard, ReplicaRecord learner) =>
        new(shard, learner.ReplacesNode == 0 ? learner.NodeId : new NodeId(learner.ReplacesNode), learner.NodeId);

    /// <summary>The change that makes the learner a voter, once it has caught up.</summary>
    public ReplicaChange Last(ReplicaId learner) =>
        _old is null ? new ReplicaChange.Promote(learner, _replicationFactor) : new ReplicaChange.Swap(_old.ReplicaId, learner);

    /// <summary>The result of a replacement if the record already decides it; null if it has to be tried.</summary>
    /// <param name="record">The shard's record.</param>
    /// <param name="request">What is asked for.</param>
    /// <param name="replicationFactor">Number of voters that each shard of the cluster should have.</param>
    /// <param name="last">The last replacement completed by another call: from where, to where, and the new replica.</param>
    public static OrderResult? Foresee(ShardRecord record, ReplacementRequest request, int replicationFactor, (NodeId From, NodeId To, ReplicaId Replica)? last)
    {
        var (from, to) = (request.From, request.To);
        var there = record.Replicas.FirstOrDefault(replica => replica.NodeId == from);
        if (to.IsNone)
            return there is { Learner: true } ? null : new OrderResult(false, $"node {from} has no learner of the shard");
        if (!request.Lost.IsNone && there is { Learner: false } && there.ReplicaId != request.Lost)
            return new OrderResult(true, "another replica already votes in its place");
        if (there is null
            && last is { } done && (done.From, done.To) == (from, to) && record.Replicas.Any(replica => replica.ReplicaId == done.Replica && !replica.Learner))
            return new OrderResult(true, "another call already did it");
        var lost = LostOf(there, request);
        var voters = record.Replicas.Count(replica => !replica.Learner && replica.ReplicaId != lost);
        if (lost.IsNone && there is not { Learner: false } && (voters >= replicationFactor || (!from.IsNone && from != to)))
            return new OrderResult(false, $"node {from} has no voter of the shard");
        return record.Replicas.Any(replica => replica.NodeId == to && !replica.Learner && replica.ReplicaId != lost)
            ? new OrderResult(false, $"node {to} already has a replica of the shard")
            : null;
    }

    /// <summary>The request that a node makes to its shard's leader because of its own replica; null: none.</summary>
    /// <param name="record">The shard's record.</param>
    /// <param name="node">The node.</param>
    /// <param name="replica">The replica whose directory the node has.</param>
    /// <param name="isLost">Whether that replica is lost.</param>
    /// <param name="replicationFactor">Number of voters that each shard of the cluster should have.</param>
    public static ReplacementRequest? Own(ShardRecord record, NodeId node, ReplicaId replica, bool isLost, int replicationFactor)
    {
        // Made for a lost replica, or for a learner that replaces a lost one, in case the leader went away before the learner became a voter. If there are
        // enough voters, the leader decides which one the learner replaces. A missing voter is not this node's matter: the placement controller finds a
        // node for it.
        var here = record.Replicas.FirstOrDefault(member => member.NodeId == node);
        if (here is null || record.Replicas.Count == 1 || here.ReplicaId != replica)
            return null;
        if (!isLost && (!here.Learner || record.Replicas.Count(static member => !member.Learner) >= replicationFactor))
            return null;
        return new ReplacementRequest(record.ShardId, node, node) { Lost = isLost ? replica : ReplicaId.None };
    }

    /// <summary>The learner on a node; 0: none.</summary>
    /// <param name="lost">A replica to ignore.</param>
    public static ReplicaId LearnerOn(ShardRecord record, NodeId node, ReplicaId lost = default) =>
        record.Replicas.FirstOrDefault(replica => replica.NodeId == node && replica.Learner && replica.ReplicaId != lost)?.ReplicaId ?? ReplicaId.None;

    // A lost replica counts for nothing, so removing it first does not reduce safety, and a node has one replica of a shard at a time.
    private static ReplicaId LostOf(ReplicaRecord? there, ReplacementRequest request) =>
        request.From == request.To && there is not null && (request.Lost.IsNone ? !there.Learner : request.Lost == there.ReplicaId) ? there.ReplicaId
            : ReplicaId.None;

    /// <summary>Watches one learner catch up. Not thread-safe.</summary>
    /// <param name="learner">The learner's id.</param>
    /// <param name="patience">The learner is given up if it makes no progress for this long.</param>
    /// <param name="now">The current time.</param>
    public sealed class CatchUp(ReplicaId learner, TimeSpan patience, TimeSpan now)
    {
        private (ulong Acknowledged, long Stored, long Verified) _seen;
        private TimeSpan _movedAt = now;

        /// <summary>True if it has caught up, false if it makes no progress, null to look again later.</summary>
        /// <param name="view">The leader's view; null if its replica has stopped.</param>
        /// <param name="now">The current time.</param>
        public bool? Look(LeaderView? view, TimeSpan now)
        {
            var follower = view?.Followers.FirstOrDefault(follower => follower.Replica == learner);
            // The leader refuses the last change of a replacement by the same verdict.
            if (follower is { FollowsClosely: true })
                return true;
            if (follower is not null && (follower.Acknowledged.Change, follower.SnapshotStored, follower.SnapshotVerified) is var seen && seen != _seen)
                (_seen, _movedAt) = (seen, now);
            return now - _movedAt >= patience ? false : null;
        }
    }
}
