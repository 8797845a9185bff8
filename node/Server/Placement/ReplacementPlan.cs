// What a replacement of a replica consists of: functions of the shard's record, of the request, of what the leader sees of its followers, and of a clock's readings. No I/O and no
// waiting, which are ReplicaReplacement's in a node and the simulation's own. Any thread.
using KvCluster.Node.Shards;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Node.Placement;

/// <summary>The steps of one replacement, as the record stands. A replacement that was interrupted is taken up by planning it again.</summary>
internal sealed class ReplacementPlan
{
    /// <summary>A learner that lacks no more changes than this has caught up: the rest takes milliseconds.</summary>
    private const ulong LagChangesMax = 1_000;

    private readonly int _replicationFactor;
    private readonly uint _toNode;
    private readonly ReplicaRecord? _old;

    /// <param name="record">The shard's, for which <see cref="Foresee"/> said nothing.</param>
    /// <param name="request">See admin.proto for its cases.</param>
    /// <param name="replicationFactor">Voters that a shard of this cluster is to have.</param>
    public ReplacementPlan(ShardRecord record, ReplaceRequest request, int replicationFactor)
    {
        var there = record.Replicas.FirstOrDefault(replica => replica.Node == request.FromNode);
        (_replicationFactor, _toNode, Lost) = (replicationFactor, request.ToNode, LostOf(there, request));
        Replicas = [.. record.Replicas.Where(replica => replica.Replica != Lost)];
        // Of nobody, a new one may come where one is missing.
        _old = Lost == 0 && there is { Learner: false } ? there : null;
        Leaves = _old?.Replica ?? Lost;
        Learner = _toNode == 0 ? 0 : LearnerOn(record, _toNode, Lost);
        if (_toNode == 0)
            (Removal, RemovesLearner) = (new ReplicaChange.Remove(there!.Replica), true);
        else if (Lost != 0 && Replicas.Count(static replica => !replica.Learner) >= replicationFactor)
            Removal = new ReplicaChange.Remove(Lost);
    }

    /// <summary>The one change that does it all: nothing comes in the place of what leaves. Null: something does.</summary>
    public ReplicaChange? Removal { get; }

    /// <summary><see cref="Removal"/> is only right while the replica does not vote.</summary>
    public bool RemovesLearner { get; }

    /// <summary>The learner that is to vote, if it is in the record already; else 0.</summary>
    public ulong Learner { get; }

    /// <summary>The lost replica that leaves; 0: none.</summary>
    public ulong Lost { get; }

    /// <summary>The replica that is not to be in the record any more; 0: none.</summary>
    public ulong Leaves { get; }

    /// <summary>Who is in the record and not lost.</summary>
    public IReadOnlyList<ReplicaRecord> Replicas { get; }

    /// <summary>Learners that a change which was broken off has left; their nodes may never come back. They go before another one comes.</summary>
    public IEnumerable<ReplicaRecord> Orphans(Func<uint, bool> isAway) => Replicas.Where(replica => replica.Learner && isAway(replica.Node));

    /// <summary>Why no learner may come now; null: one may.</summary>
    /// <param name="removed">Orphans that are gone by now.</param>
    public string? WhyNoLearner(IReadOnlyCollection<ulong> removed) =>
        _old is null && Replicas.FirstOrDefault(replica => replica.Learner && !removed.Contains(replica.Replica)) is { } other ? $"the learner on node {other.Node} is to vote there" : null;

    /// <summary>The change by which the new replica comes; a lost one leaves by it.</summary>
    /// <param name="learner">An id never used.</param>
    public ReplicaChange Add(ulong learner) => new ReplicaChange.AddLearner(learner, _toNode, Lost);

    /// <summary>The change by which the learner votes, once it has caught up.</summary>
    public ReplicaChange Last(ulong learner) => _old is null ? new ReplicaChange.Promote(learner, _replicationFactor) : new ReplicaChange.Swap(_old.Replica, learner);

    /// <summary>How a replacement ends as the record is; null: it has to be tried.</summary>
    /// <param name="record">The shard's.</param>
    /// <param name="request">See admin.proto for its cases.</param>
    /// <param name="replicationFactor">Voters that a shard of this cluster is to have.</param>
    /// <param name="last">What another call brought to its end last: from where, to where, and the replica that came.</param>
    public static OrderResult? Foresee(ShardRecord record, ReplaceRequest request, int replicationFactor, (uint From, uint To, ulong Replica)? last)
    {
        var (from, to) = (request.FromNode, request.ToNode);
        var there = record.Replicas.FirstOrDefault(replica => replica.Node == from);
        if (to == 0)
            return there is { Learner: true } ? null : new OrderResult(false, $"node {from} has no learner of it");
        if (request.Lost != 0 && there is { Learner: false } && there.Replica != request.Lost)
            return new OrderResult(true, "another votes in its place");
        if (there is null && last is { } done && (done.From, done.To) == (from, to) && record.Replicas.Any(replica => replica.Replica == done.Replica && !replica.Learner))
            return new OrderResult(true, "another call did it");
        var lost = LostOf(there, request);
        var voters = record.Replicas.Count(replica => !replica.Learner && replica.Replica != lost);
        if (lost == 0 && there is not { Learner: false } && (voters >= replicationFactor || (from != 0 && from != to)))
            return new OrderResult(false, $"node {from} has no voter of it");
        return record.Replicas.Any(replica => replica.Node == to && !replica.Learner && replica.Replica != lost) ? new OrderResult(false, $"node {to} has a replica of the shard") : null;
    }

    /// <summary>What a node asks its shard's leader for because of its own replica; null: nothing.</summary>
    /// <param name="record">The shard's.</param>
    /// <param name="node">The node.</param>
    /// <param name="replica">The replica whose directory it has.</param>
    /// <param name="isLost">That one is lost.</param>
    /// <param name="replicationFactor">Voters that a shard of this cluster is to have.</param>
    public static ReplaceRequest? Own(ShardRecord record, uint node, ulong replica, bool isLost, int replicationFactor)
    {
        // Lost, or a learner in the place of a lost one, in case the leader went away before it let it vote. A learner beside all voters is for its leader to put in the place of
        // one of them. Nothing here where one is missing: the controller of the placement finds it a node.
        var here = record.Replicas.FirstOrDefault(member => member.Node == node);
        if (here is null || record.Replicas.Count == 1 || here.Replica != replica)
            return null;
        if (!isLost && (!here.Learner || record.Replicas.Count(static member => !member.Learner) >= replicationFactor))
            return null;
        return new ReplaceRequest { Shard = record.Shard, FromNode = node, ToNode = node, Lost = isLost ? replica : 0 };
    }

    /// <summary>The learner that a node has; 0: none.</summary>
    /// <param name="lost">Not this one.</param>
    public static ulong LearnerOn(ShardRecord record, uint node, ulong lost = 0) =>
        record.Replicas.FirstOrDefault(replica => replica.Node == node && replica.Learner && replica.Replica != lost)?.Replica ?? 0;

    // A lost replica counts for nothing, so its leaving first costs no safety; and a node has one replica of a shard at a time.
    private static ulong LostOf(ReplicaRecord? there, ReplaceRequest request) =>
        request.FromNode == request.ToNode && there is not null && (request.Lost == 0 ? !there.Learner : request.Lost == there.Replica) ? there.Replica : 0;

    /// <summary>Watches one learner catch up. Not for several threads at once.</summary>
    /// <param name="learner">Its id.</param>
    /// <param name="patience">It is given up when it gets no further for so long.</param>
    /// <param name="now">The clock.</param>
    public sealed class CatchUp(ulong learner, TimeSpan patience, TimeSpan now)
    {
        private (ulong Acknowledged, ulong Stored, ulong Verified) _seen;
        private TimeSpan _movedAt = now;

        /// <summary>Whether it has caught up (true), or gets no further (false); null: it is to be looked at again.</summary>
        /// <param name="status">Of the leader's replica, with its detail.</param>
        /// <param name="now">The clock.</param>
        public bool? Look(ReplicaStatus status, TimeSpan now)
        {
            var follower = status.Detail?.Followers.FirstOrDefault(follower => follower.Replica == learner);
            if (follower is { State: "replicate" } && follower.Acknowledged.Change + LagChangesMax >= status.Committed.Change)
                return true;
            if (follower is not null && (follower.Acknowledged.Change, follower.SnapshotStored, follower.SnapshotVerified) is var seen && seen != _seen)
                (_seen, _movedAt) = (seen, now);
            return now - _movedAt >= patience ? false : null;
        }
    }
}
