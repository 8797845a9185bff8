using KvCluster.Internal.V1;
using KvCluster.Node.Recovery;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// The coordinator's data is lost, and an operator has it rebuilt: from all nodes, or without one that is down. The plan is the host's own (<see cref="RecoveryPlan"/>), and so are
/// the answers of the nodes. If it refuses, the operator does what it asks for, and tries again.
/// </summary>
internal sealed class CoordinatorLoss(ClusterRun run)
{
    private const long AnswerWithinUs = 500_000;

    private readonly SortedDictionary<NodeId, NodeReport> _reports = [];
    private ClusterNode? _absent;
    private int _rounds;

    /// <summary>Loses the data, unless it is lost already. With it go all processes, or that of one node, or none.</summary>
    public void Begin(ClusterNode node)
    {
        if (run.Coordinator.IsLost)
            return;
        run.Coordinator.Lose();
        switch (run.Random.Next(3))
        {
            case 0 when node.IsUp:
                node.Crash();
                _absent = node;
                break;
            case 1:
                foreach (var other in run.Nodes)
                    other.Restart(static () => { });
                break;
        }

        run.Time.After(run.Random.NextInt64(50_000, 1_500_000), Ask);
    }

    private void Ask()
    {
        // Somebody has started it meanwhile. It answers like the others.
        if (_absent is { IsWaiting: true } or { IsUp: true })
            _absent = null;
        _reports.Clear();
        var round = ++_rounds;
        foreach (var node in run.Nodes.Where(node => node != _absent))
        {
            node.Admin.Report(report =>
            {
                // An answer that is late belongs to a question that was given up.
                if (round == _rounds)
                    _reports[node.Id] = report;
            });
        }

        run.Time.After(AnswerWithinUs, Decide);
    }

    private void Decide()
    {
        _rounds++;
        var found = new RecoveryFindings { Reports = [.. _reports.Values], Without = _absent is null ? new HashSet<NodeId>() : [_absent.Id] };
        var plan = RecoveryPlan.Of(found, random: 1);
        if (plan.Refusals.Count == 0 || (run.Bug == InjectedBug.SilenceIsAnAnswer && plan.Shards.Any(static shard => shard.Intact.Count > shard.Missing.Count)))
        {
            run.Time.After(1 + ((long)plan.WaitMs * 1_000), () => Put(plan));
            return;
        }

        run.Trace($"the record is not rebuilt: {plan.Refusals[0]}");
        // What was down comes up, or the node that is said to be gone is found after all.
        if (_reports.Count == run.Nodes.Count - (_absent is null ? 0 : 1))
            _absent?.Start();
        run.Time.After(run.Random.NextInt64(100_000, 300_000), Ask);
    }

    private void Put(RecoveryPlan plan)
    {
        run.Tally.Count(ClusterFault.LoseCoordinator);
        _absent?.MissRecovery();
        run.Coordinator.Rebuild(plan.Cluster!, plan.Shards.Single().Record);
        if (_absent is { } absent)
            run.Time.After(run.Random.NextInt64(100_000, 2_000_000), absent.Start);
        _absent = null;
    }
}
