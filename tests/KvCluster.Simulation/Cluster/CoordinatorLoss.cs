using KvCluster.Internal.V1;
using KvCluster.Node.CoordinatorRecovery;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// The coordinator's data is lost, and an operator has it rebuilt: from all nodes, or without one that is down or only unreachable. The plan is the host's own
/// (<see cref="RecoveryPlan"/>), and so are the answers of the nodes. If it refuses, the operator does what it asks for, and tries again. Meanwhile recoveries
/// end early, the lost store comes back to some nodes, and the rebuilt one is lost too.
/// </summary>
internal sealed class CoordinatorLoss(ClusterRun run)
{
    private const long AnswerWithinUs = 500_000;

    private readonly SortedDictionary<NodeId, NodeReport> _reports = [];
    private readonly HashSet<NodeId> _asked = [];
    private readonly List<ShardRecord> _leftBehind = [];
    private ClusterNode? _absent;
    private ulong _numberLast;
    private int _rounds;

    /// <summary>Loses the data, unless it is lost already. With it go all processes, or that of one node, or none.</summary>
    public void Begin(ClusterNode node)
    {
        if (run.Coordinator.IsLost)
            return;
        run.Coordinator.Lose();
        _leftBehind.Clear();
        _absent = null;
        switch (run.Random.Next(4))
        {
            case 0 when node.IsUp:
                node.Crash();
                _absent = node;
                break;
            case 1:
                foreach (var other in run.Nodes)
                    other.Restart(static () => { });
                break;
            case 2 when node.IsUp:
                // It is named gone, and runs.
                _absent = node;
                break;
        }

        MaybeShowOld();
        run.Time.After(run.Random.NextInt64(50_000, 1_500_000), Ask);
    }

    // Not to a node that is named gone. If that one ran, and the old store too, the operator would have been wrong twice.
    private void MaybeShowOld()
    {
        if (run.Healed || run.Random.Next(3) != 0)
            return;
        run.Coordinator.ShowOld(run.Nodes.Where(node => node != _absent && run.Random.Next(3) != 0).Select(static node => node.Id).ToArray());
        run.Time.After(run.Random.NextInt64(300_000, 3_000_000), run.Coordinator.HideOld);
    }

    private void Ask()
    {
        // A node that was down and has been started answers like the others.
        if (_absent is { IsWaiting: true } || run.Healed)
            _absent = null;
        _reports.Clear();
        _asked.Clear();
        var claim = new RecoveryClaim { Recovery = ++_numberLast, RecoveryId = _numberLast, Node = 1 };
        var round = ++_rounds;
        // While nodes are asked, all reach the new store, or one says that it does not.
        if (run.Random.Next(4) != 0)
            run.Coordinator.HideOld();
        Ask(claim, round, [run.Nodes[run.Random.Next(run.Nodes.Count)].Id]);
        run.Time.After(AnswerWithinUs, () => Decide(claim));
    }

    private void Ask(RecoveryClaim claim, int round, IEnumerable<NodeId> nodes)
    {
        foreach (var node in nodes.Where(node => node != _absent?.Id && _asked.Add(node)).ToArray())
        {
            run.NodeOf(node).Admin.Report(claim, report =>
            {
                // An answer that is late belongs to a question that was given up.
                if (round != _rounds)
                    return;
                _reports[node] = report;
                Ask(claim, round, Findings(claim).Named);
            });
        }
    }

    private RecoveryFindings Findings(RecoveryClaim claim) => new()
    {
        Reports = [.. _reports.Values],
        Without = _absent is null ? new HashSet<NodeId>() : [_absent.Id],
        HeldShards = _leftBehind,
        // All before have lower numbers, and not every node has heard of each.
        HeldClaim = new RecoveryClaim { Recovery = claim.Recovery - 1 },
    };

    private void Decide(RecoveryClaim claim)
    {
        _rounds++;
        var plan = RecoveryPlan.Of(Findings(claim), claim.RecoveryId);
        if (plan.Refusals.Count == 0 || (run.Bug == InjectedBug.SilenceIsAnAnswer && plan.Shards.Any(static shard => shard.Intact.Count > shard.Missing.Count)))
        {
            MaybeShowOld();
            run.Time.After(1 + ((long)plan.WaitMs * 1_000) + run.Random.NextInt64(1_000_000), () => Put(plan, claim));
            return;
        }

        run.Trace($"the record is not rebuilt: {plan.Refusals[0]}");
        End(claim);
        // What was down comes up, or the node that is said to be gone is found after all.
        if (_absent is not null && run.Random.Next(2) == 0)
        {
            _absent.Start();
            _absent = null;
        }

        run.Time.After(run.Random.NextInt64(100_000, 300_000), Ask);
    }

    private void Put(RecoveryPlan plan, RecoveryClaim claim)
    {
        var record = plan.Shards.Single().Record;
        if (!run.Healed && run.Random.Next(4) == 0)
        {
            run.Trace($"recovery {claim.Recovery} ends before it is complete");
            _leftBehind.Clear();
            _leftBehind.Add(record);
            End(claim);
            run.Time.After(run.Random.NextInt64(100_000, 300_000), Ask);
            return;
        }

        run.Tally.Count(ClusterFault.LoseCoordinator);
        run.Coordinator.Rebuild(plan.Cluster!, record);
        if (_absent is { } absent)
            run.Time.After(run.Random.NextInt64(100_000, 2_000_000), absent.Start);
        _absent = null;
        // Before all nodes have joined.
        if (!run.Healed && run.Random.Next(4) == 0)
            run.Time.After(run.Random.NextInt64(1_500_000), () => Again(run.Nodes[run.Random.Next(run.Nodes.Count)]));
    }

    private void Again(ClusterNode node)
    {
        if (!run.Healed)
            Begin(node);
    }

    // The nodes hear of it, unless the one that rebuilt the records has ended too.
    private void End(RecoveryClaim claim)
    {
        if (run.Random.Next(3) == 0)
            return;
        foreach (var node in run.Nodes)
            node.Release(claim);
    }
}
