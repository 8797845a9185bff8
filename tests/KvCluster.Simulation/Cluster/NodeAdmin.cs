using KvCluster.Internal.V1;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Placement;
using KvCluster.Node.Shards;
using KvCluster.Node.Shards.Loop;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// Requests of operators and other nodes about the shard's replicas, answered as AdminService, ReplacementExecution and StopPermissions of the host do.
/// </summary>
internal sealed class NodeAdmin(ClusterRun run, ClusterNode node)
{
    private static readonly ShardId Shard = new(0);

    private const string WhyQuarantined = "an operator does not believe it";

    // Some work items of the writer, and much more than the pool ever takes.
    private const long StatusWithinUs = 5_000;
    private const long ChangeWithinUs = 5_000_000;
    private static readonly TimeSpan LearnerPatience = TimeSpan.FromSeconds(4);
    private static readonly TimeSpan StatusWithin = TimeSpan.FromSeconds(20);

    private MajorityAfterStop? _majority;
    private (ReplicaId Learner, ReplacementPlan.CatchUp Watch)? _catchUp;

    /// <summary>The replica was told to stop for good, and may have stopped.</summary>
    public bool MayBeQuarantined { get; private set; }

    /// <summary>A process has started.</summary>
    public void Begin()
    {
        _catchUp = null;
        _majority = new MajorityAfterStop(
            node.Id,
            other => run.NodeOf(other).IsUp && !run.Network.IsCut(node.Id, other) && !run.Network.IsCut(other, node.Id), static _ => false, node.Clock);
    }

    /// <summary>The replica is gone.</summary>
    public void Forget() => MayBeQuarantined = false;

    /// <summary>An operator asks it to transfer its leadership.</summary>
    public void Transfer(ReplicaId replica) => node.Events.Deliver(() =>
    {
        if (node.Replica is null)
            return;
        run.Trace($"node {node.Id} is asked to transfer its leadership");
        // It completes on the thread pool, at a poll that may differ between runs. It is counted but does not affect the replayed course.
        node.Events.Poll(node.Replica.Orders.TransferAsync(replica), result => run.Transfers += result.Done ? 1 : 0);
    });

    /// <summary>It is asked repeatedly, as the leader, for a replacement. Each time it does the next step. The record shows the result.</summary>
    public void Replace(ReplacementRequest request) => node.Events.Deliver(() =>
    {
        if (node.Replica is not { } replica)
            return;
        if (request.From == node.Id)
        {
            Transfer(ReplicaId.None);
            return;
        }

        WithView(replica, view =>
        {
            if (ReplacementPlan.Foresee(view.Record, request, Replacements.Voters, last: null) is null
                && Due(view, new ReplacementPlan(view.Record, request, Replacements.Voters), request.To) is { } change)
                Change(replica, view, change);
        });
    });

    /// <summary>It is asked, as the leader, whether a node's replica may stop.</summary>
    /// <param name="of">The node of the replica.</param>
    /// <param name="done">Gets the epoch of the leadership that judges, and the reason for a refusal or null.</param>
    public void Judge(NodeId of, Action<ulong, string?> done) => node.Events.Deliver(() =>
    {
        if (node.Replica is not { IsServing: true } replica)
            done(0, "this node does not lead");
        else
            WithView(replica, view => done(view.Epoch, _majority!.TryLetGo(view, of, StopPermissions.GoneTime)));
    });

    /// <summary>An operator has its replica taken out of service, with the consent of the shard's leader.</summary>
    public void AskForQuarantine() => node.Events.Deliver(() =>
    {
        if (!node.IsUp || node.Replica is null)
            return;
        run.Trace($"replica {node.ReplicaId:x} on node {node.Id} is to be quarantined");
        var process = node.Process;
        var usableUntil = node.Clock.GetTimestamp() + (long)(StopPermissions.UseTimeMax.TotalSeconds * node.Clock.TimestampFrequency);
        run.Network.Call(run.LeaderHint, leader => leader.Admin.Judge(node.Id, (epoch, refusal) => run.Network.Reply(() => node.Events.Deliver(() =>
        {
            if (!node.IsUp || node.Process != process || node.Replica is null)
                return;
            if (refusal is not null)
            {
                run.Trace($"it must stay: {refusal}");
                run.Tally.Count(ClusterFault.QuarantineRefused);
                return;
            }

            MayBeQuarantined = true;
            node.Events.Poll(node.Replica.Quarantine.EnterAsync(WhyQuarantined, new QuarantineLeave(epoch, usableUntil)), static _ => { });
        }))));
    });

    /// <summary>
    /// Who rebuilds the coordinator's record asks it, and it binds itself and answers as NodeReporter does. A process that is down does not answer.
    /// </summary>
    public void Report(RecoveryClaim claim, Action<NodeReport> answer)
    {
        if (!node.IsUp && !node.IsWaiting && !node.IsThere)
            return;
        node.Events.Deliver(() =>
        {
            var unbound = node.Bind(claim);
            void Done(NodeReport report)
            {
                (report.Unbound, report.Bound) = (unbound, node.Bound);
                answer(report);
            }

            if (node.Replica is not { Failure: null } replica)
                Done(ReportOf(
                    node.Disk.ReadControl() is { } control ? NodeReporter.Of(Shard, control, node.Lost || node.IsUp ? "it is lost" : "") : null, node.Known));
            else
                node.Events.Poll(replica.Reads.ConfirmAsync(CancellationToken.None), confirmed => WithPromises(replica, promises => Done(
                    ReportOf(NodeReporter.Of(Shard, promises, promises.Leads && confirmed is not null), Newer(promises.Record, node.Known)))));
        });
    }

    /// <summary>
    /// The replica has stopped for good. From now on it does not count, and neither does one that stopped before. The rest must be a majority.
    /// </summary>
    public void OnQuarantined()
    {
        run.Tally.Count(ClusterFault.Quarantine);
        var voters = run.Coordinator.Record.Replicas.Where(static replica => !replica.Learner).ToArray();
        var staying = voters.Count(voter => voter.NodeId != node.Id && run.NodeOf(voter.NodeId) is { Lost: false } other && other.ReplicaId == voter.ReplicaId);
        Violation.Unless(
            staying * 2 > voters.Length, Rule.Available, $"the replica on node {node.Id} was quarantined, and of {voters.Length} voters {staying} are left");
        node.Lose(WhyQuarantined);
    }

    private ReplicaChange? Due(LeaderView view, ReplacementPlan plan, NodeId to)
    {
        if (plan.Removal is { } removal)
            return removal;
        if (plan.Learner.IsNone)
        {
            return IsAway(to) ? null
                : plan.Orphans(IsAway).FirstOrDefault() is { } orphan ? new ReplicaChange.Remove(orphan.ReplicaId)
                : plan.WhyNoLearner([]) is null ? plan.Add(run.NewReplicaId())
                : null;
        }

        var now = TimeSpan.FromMicroseconds(run.NowUs);
        if (_catchUp?.Learner != plan.Learner)
            _catchUp = (plan.Learner, new ReplacementPlan.CatchUp(plan.Learner, LearnerPatience, now));
        return _catchUp.Value.Watch.Look(view, now) switch
        {
            true => plan.Last(plan.Learner),
            false => new ReplicaChange.Remove(plan.Learner),
            null => null,
        };
    }

    private void Change(ShardReplica replica, LeaderView view, ReplicaChange change)
    {
        var majority = _majority!;
        if (majority.TryBegin(view, change, force: false) is { } refusal)
        {
            run.Trace($"node {node.Id} refuses to {change}: {refusal}");
            return;
        }

        run.Trace($"node {node.Id} is to {change}");
        // The time at which the order ends must not affect the course. This is longer than any transaction at the coordinator takes.
        node.Events.InThisProcess(ChangeWithinUs, () => majority.End(view.Record.ShardId, change));
        node.Events.Poll(replica.Orders.ChangeReplicasAsync(change), static _ => { });
    }

    private bool IsAway(NodeId other) =>
        other != node.Id && (!run.NodeOf(other).IsThere || run.Network.IsCut(node.Id, other) || run.Network.IsCut(other, node.Id));

    private NodeReport ReportOf(KeptReplica? replica, ShardRecord? record)
    {
        var report = new NodeReport
        {
            Node = node.Id.Value,
            Starts = new NodeStarts { Starts = node.Disk.LastProcess },
            Cluster = node.Joined,
            Coordinator = new CoordinatorState(),
            // It may not have heard yet of a node that has no replica.
            Nodes = { run.Nodes.Where(other => !other.ReplicaId.IsNone || run.Random.Next(4) != 0).Select(
                static other => new NodeRecord { NodeId = other.Id }) },
        };
        if (replica is not null)
            report.Replicas.Add(replica);
        if (record is not null)
            report.Shards.Add(record);
        return report;
    }

    // A replica that was removed has not adopted the record that says so.
    private static ShardRecord Newer(ShardRecord own, ShardRecord? known) =>
        known is not null && known.Rank.CompareTo(own.Rank) > 0 ? known : own;

    // As WithView.
    private void WithPromises(ShardReplica replica, Action<ReplicaPromises> then)
    {
        var asked = replica.Report.PromisesAsync();
        node.Events.InThisProcess(StatusWithinUs, () => node.Events.Deliver(() =>
        {
            if (node.IsUp && node.Replica == replica && asked.Wait(StatusWithin) && asked.Result is { } promises)
                then(promises);
        }));
    }

    // The pool completes the view after the writer has described it. The caller waits for that, so that it gets the view in the same step in
    // every run of a seed.
    private void WithView(ShardReplica replica, Action<LeaderView> then)
    {
        var asked = replica.Report.LookAsync();
        node.Events.InThisProcess(StatusWithinUs, () => node.Events.Deliver(() =>
        {
            if (node.IsUp && node.Replica == replica && asked.Wait(StatusWithin) && asked.Result is { } view)
                then(view);
        }));
    }
}
