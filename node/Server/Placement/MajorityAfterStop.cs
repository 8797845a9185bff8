// A leader's judgement of whether a shard keeps a majority when a replica stops or leaves. It uses its view of the replicas, those that it has just
// released, and the changes of the record in progress. Used by StopPermissions in a node, and by the simulation's nodes. Any thread, under one lock; no I/O.
using KvCluster.Internal.V1;
using KvCluster.Node.Shards;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Placement;

/// <summary>Judges for the shards that a node leads, and remembers which replicas it released and which changes it let begin.</summary>
/// <param name="node">This node.</param>
/// <param name="isConnected">Whether another node is connected to this one.</param>
/// <param name="drains">Whether a node is about to stop.</param>
/// <param name="clock">A clock that continues while the machine sleeps.</param>
internal sealed class MajorityAfterStop(NodeId node, Func<NodeId, bool> isConnected, Func<NodeId, bool> drains, TimeProvider clock)
{
    /// <summary>A follower that was heard within this time counts.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(3);

    /// <summary>The same while the leader is quiescent: three of its heartbeat intervals.</summary>
    private static readonly TimeSpan SilenceMaxQuiescent = TimeSpan.FromSeconds(15);

    private readonly Lock _gate = new();

    // Replicas that were just released and may still answer. An entry counts in its epoch only, because the replica does not stop in a later one.
    private readonly Dictionary<(ShardId Shard, ReplicaId Replica), (ulong Epoch, long Until)> _letGo = [];

    // Changes whose outcome is not known yet: the voters from before may decide, or those from after. They end with their epoch, too.
    private readonly Dictionary<ShardId, List<(ulong Epoch, ReplicaChange Change)>> _underWay = [];

    /// <summary>
    /// Releases a node's replica if a majority remains without it, although it stays in the record and counts there. Returns why it must stay; null if it
    /// may stop.
    /// </summary>
    /// <param name="view">The leader's view.</param>
    /// <param name="leavingNode">The node whose replica wants to stop. A learner may, unless a change in progress makes it a voter.</param>
    /// <param name="keptTime">How long the replica counts as gone.</param>
    public string? TryLetGo(LeaderView view, NodeId leavingNode, TimeSpan keptTime)
    {
        if (view.Record.Replicas.FirstOrDefault(replica => replica.NodeId == leavingNode)?.ReplicaId is not { } leaving)
            return null;
        lock (_gate)
        {
            foreach (var (voters, joins) in SetsOf(view))
            {
                // The replica stays in the record and counts there, so the others must be a majority of the set that includes it.
                var follow = CountClose(view, voters, leaving, joins, countsDraining: false);
                if (voters.Contains(leaving) && follow * 2 <= voters.Count)
                    return $"of {voters.Count} voters{(joins.IsNone ? "" : ", including the one being added,")} only {follow} others follow closely and "
                        + "remain, which is not a majority";
            }

            if (keptTime > TimeSpan.Zero)
                _letGo[(view.Record.ShardId, leaving)] = (view.Epoch, clock.GetTimestamp() + (long)(keptTime.TotalSeconds * clock.TimestampFrequency));
            return null;
        }
    }

    /// <summary>
    /// Lets a change of the record begin if a majority of the voters after it follows closely. Returns why not; null if it begins, and <see cref="End"/>
    /// must follow.
    /// </summary>
    /// <param name="view">The leader's view.</param>
    /// <param name="change">The change. A learner that becomes a voter by it has caught up.</param>
    /// <param name="force">The change begins even without a majority.</param>
    public string? TryBegin(LeaderView view, ReplicaChange change, bool force)
    {
        lock (_gate)
        {
            var voters = VotersOf(view.Record, change);
            var follow = CountClose(view, voters, ReplicaId.None, change.Joins, countsDraining: true);
            if (!force && VotersOf(view.Record).Contains(change.Leaves) && follow * 2 <= voters.Count)
                return $"of the {voters.Count} voters that would remain, only {follow} follow closely";
            if (!_underWay.TryGetValue(view.Record.ShardId, out var changes))
                _underWay[view.Record.ShardId] = changes = [];
            changes.Add((view.Epoch, change));
            return null;
        }
    }

    /// <summary>A change that was begun is in the record, or never will be, or another replica leads by now.</summary>
    public void End(ShardId shard, ReplicaChange change)
    {
        lock (_gate)
        {
            if (!_underWay.TryGetValue(shard, out var changes))
                return;
            changes.RemoveAt(changes.FindIndex(begun => begun.Change == change));
            if (changes.Count == 0)
                _underWay.Remove(shard);
        }
    }

    // The present voters, and the voters after each change in progress.
    private List<(HashSet<ReplicaId> Voters, ReplicaId Joins)> SetsOf(LeaderView view)
    {
        var changes = _underWay.GetValueOrDefault(view.Record.ShardId) ?? [];
        return [(VotersOf(view.Record), ReplicaId.None), .. changes.Where(begun => begun.Epoch == view.Epoch)
            .Select(begun => (VotersOf(view.Record, begun.Change), begun.Change.Joins))];
    }

    private static HashSet<ReplicaId> VotersOf(ShardRecord record, ReplicaChange change)
    {
        var voters = VotersOf(record);
        voters.Remove(change.Leaves);
        if (!change.Joins.IsNone)
            voters.Add(change.Joins);
        return voters;
    }

    private static HashSet<ReplicaId> VotersOf(ShardRecord record) =>
        [.. record.Replicas.Where(static replica => !replica.Learner).Select(static replica => replica.ReplicaId)];

    // Counts the leader unless it leaves, the followers that are close, and the joining learner, which has caught up. A node that drains is about to stop. This
    // is not FollowerView.FollowsClosely: a voter on a slow machine may be behind, and its shard has a majority with it nevertheless.
    private int CountClose(LeaderView view, HashSet<ReplicaId> voters, ReplicaId leaving, ReplicaId joins, bool countsDraining)
    {
        var silenceMax = view.IsQuiescent ? SilenceMaxQuiescent : SilenceMax;
        var close = view.Followers
            .Where(follower => follower.State == FollowerState.Replicate && follower.SilentUs < silenceMax.TotalMicroseconds && isConnected(follower.Node))
            .Select(follower => (follower.Replica, follower.Node))
            .Append((view.Replica, node))
            .Where(voter => countsDraining || !drains(voter.Item2))
            .Select(static voter => voter.Item1)
            .ToHashSet();
        return voters.Count(voter => voter != leaving && (voter == joins || close.Contains(voter)) && !WasLetGo(view, voter));
    }

    private bool WasLetGo(LeaderView view, ReplicaId replica)
    {
        var key = (view.Record.ShardId, replica);
        if (!_letGo.TryGetValue(key, out var gone))
            return false;
        if (gone.Epoch == view.Epoch && clock.GetTimestamp() < gone.Until)
            return true;
        _letGo.Remove(key);
        return false;
    }
}
