using KvCluster.Simulation.Cluster.Routing;

namespace KvCluster.Simulation.Cluster;

/// <summary>The faults of a run, injected one after the other with the weights of its scenario, until everything is healed.</summary>
internal sealed class ClusterFaults(
    ClusterRun run, (ClusterFault Fault, int Weight)[] mix, Replacements replacements, CoordinatorLoss loss, RoutedClient[] routed)
{
    private const long QuarantineWithinUs = 50_000;

    // Less than the time after which idle sessions of clients end.
    private const long SkippedUsMin = 5_000_000;
    private const long SkippedUsMax = 1_200_000_000;

    private static readonly TimeSpan _year = TimeSpan.FromDays(365);

    private ClusterNode Leader => run.NodeOf(run.LeaderHint);

    public void Start() => run.Time.After(run.Random.NextInt64(800_000), NextFault);

    private void NextFault()
    {
        if (run.Healed)
            return;
        var left = run.Random.Next(mix.Sum(entry => entry.Weight));
        Do(mix.First(entry => (left -= entry.Weight) < 0).Fault, run.Random.Next(2) == 0 ? run.Nodes[run.Random.Next(run.Nodes.Count)] : Leader);
        run.Time.After(run.Random.NextInt64(50_000, 1_200_000), NextFault);
    }

    private void Do(ClusterFault fault, ClusterNode node)
    {
        if (TakesEffectAtOnce(fault, node))
            run.Tally.Count(fault);
        switch (fault)
        {
            case ClusterFault.Crash:
                node.Restart(() => { });
                break;
            case ClusterFault.LosePower:
                run.Trace("power is lost");
                foreach (var other in run.Nodes)
                    other.Restart(() => { });
                break;
            case ClusterFault.AllDown:
                run.Trace("all nodes are down");
                foreach (var other in run.Nodes)
                    other.Restart(() => { });
                run.Skip(run.Random.NextInt64(SkippedUsMin, SkippedUsMax));
                break;
            case ClusterFault.AllStand:
                run.Trace("all nodes stand still");
                run.Skip(run.Random.NextInt64(SkippedUsMin, SkippedUsMax));
                break;
            case ClusterFault.CutOff:
                CutOff(node);
                break;
            case ClusterFault.CutOffAndCrash:
                CutOffAndCrash(Leader);
                break;
            case ClusterFault.Pause:
                node.Events.Pause(run.Random.NextInt64(200_000, 2_000_000));
                break;
            case ClusterFault.Checkpoint:
                node.Checkpoint();
                break;
            case ClusterFault.Transfer:
                Leader.Admin.Transfer(run.Random.Next(2) == 0 ? ReplicaId.None : node.ReplicaId);
                break;
            // One disk at a time, because nobody can restore what a majority has lost.
            case ClusterFault.Damage when AllAreWhole:
                if (run.Random.Next(2) == 0)
                    node.Restart(node.Disk.Damage);
                else
                    node.Disk.Damage();
                break;
            case ClusterFault.LoseDisk when AllAreWhole && !node.ReplicaId.IsNone:
                node.LoseDisk();
                break;
            case ClusterFault.RestoreDisk when AllAreWhole && !node.ReplicaId.IsNone:
                RestoreDisk(node);
                break;
            case ClusterFault.Outdate when AllAreWhole && !node.ReplicaId.IsNone:
                node.Version.Begin();
                break;
            case ClusterFault.Replace:
                replacements.Replace(node);
                break;
            case ClusterFault.Quarantine:
                QuarantineTwo();
                break;
            case ClusterFault.CrashInCall:
                node.Disk.CrashInCall();
                break;
            case ClusterFault.DamageSpare when AllAreWhole && !node.ReplicaId.IsNone:
                node.Restart(node.Disk.DamageSpare);
                break;
            case ClusterFault.FailDisk:
                node.Disk.Fail();
                break;
            case ClusterFault.DiskError or ClusterFault.DiskShortWrite or ClusterFault.DiskSyncLosesData:
            case ClusterFault.DiskNoRoom or ClusterFault.DiskNoRoomAfterwards or ClusterFault.DiskErrorAfterwards:
            case ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite when AllAreWhole && !node.ReplicaId.IsNone:
                node.Disk.Err(fault);
                break;
            case ClusterFault.FillDisk:
                foreach (var full in run.Random.Next(3) == 0 ? run.Nodes : [node])
                    FillDisk(full);
                break;
            case ClusterFault.SlowDisk:
                node.Disk.SlowDown(run.Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.FallBehind when AllAreWhole && node.IsUp:
                run.Tally.Count(ClusterFault.FallBehind);
                SnapshotScenarios.FallBehind(run, node);
                break;
            case ClusterFault.SlowVerification:
                node.Disk.SlowVerification(run.Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.JumpClock:
                run.Trace($"the wall clock of node {node.Id} jumps");
                node.JumpWallClock(TimeSpan.FromHours(run.Random.Next(2) == 0 ? 1 : -1));
                break;
            case ClusterFault.ClockAhead:
                RunAhead(node, run.Random.NextInt64(500_000, 3_000_000));
                break;
            case ClusterFault.CutOffCoordinator:
                CutOffCoordinator(node);
                break;
            case ClusterFault.CutOffCaller:
                CutOffCaller(routed[run.Random.Next(routed.Length)]);
                break;
            case ClusterFault.BreakStreams:
                var broken = routed[run.Random.Next(routed.Length)];
                run.Trace($"the streams of caller {broken.Number} break");
                broken.Network.BreakAll();
                break;
            case ClusterFault.CoordinatorAway:
                CutOffCoordinator(run.Nodes);
                break;
            case ClusterFault.LoseCoordinator:
                loss.Begin(node);
                break;
            case ClusterFault.RestoreCoordinator:
                RestoreCoordinator(raised: false);
                break;
            case ClusterFault.RestoreCoordinatorRaised:
                RestoreCoordinator(raised: true);
                break;
        }
    }

    // The others are counted where they take effect.
    private bool TakesEffectAtOnce(ClusterFault fault, ClusterNode node) => fault switch
    {
        ClusterFault.Crash or ClusterFault.Pause => node.IsUp,
        ClusterFault.Checkpoint => node.Replica is not null,
        ClusterFault.Transfer => Leader.Replica is not null,
        ClusterFault.CutOffAndCrash or ClusterFault.Damage
            or ClusterFault.RestoreDisk or ClusterFault.Outdate or ClusterFault.FailDisk or ClusterFault.Replace or ClusterFault.Quarantine
            or ClusterFault.DiskNoRoom
            or ClusterFault.DiskNoRoomAfterwards or ClusterFault.DiskErrorAfterwards or ClusterFault.DiskError or ClusterFault.DiskShortWrite
            or ClusterFault.DiskSyncLosesData or ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite
            or ClusterFault.LoseDisk or ClusterFault.LoseCoordinator or ClusterFault.RestoreCoordinator or ClusterFault.RestoreCoordinatorRaised
            or ClusterFault.CrashInCall or ClusterFault.DamageSpare or ClusterFault.CutOffCaller or ClusterFault.FallBehind => false,
        _ => true,
    };

    private bool AllAreWhole => run.Nodes.All(static node => node.IsWhole) && replacements.AreWhole;

    // Neither call knows of the other.
    private void QuarantineTwo()
    {
        foreach (var node in run.Nodes.Where(static node => !node.ReplicaId.IsNone).OrderBy(_ => run.Random.Next()).Take(2).ToArray())
            run.Time.After(1 + run.Random.NextInt64(QuarantineWithinUs), node.Admin.AskForQuarantine);
    }

    // Often together with the death of the leader, which would remember what the node had acknowledged.
    private void RestoreDisk(ClusterNode node)
    {
        node.Restart(node.Disk.Copy);
        run.Time.After(run.Random.NextInt64(300_000, 2_000_000), () =>
        {
            if (run.Healed || !AllAreWhole)
                return;
            node.Restart(node.RestoreDisk);
            if (run.Random.Next(2) == 0)
                Leader.Restart(static () => { });
        });
    }

    private void CutOff(ClusterNode node)
    {
        run.Trace($"node {node.Id} is cut off");
        var cut = new HashSet<(NodeId, NodeId)>();
        foreach (var other in run.Nodes.Where(other => other != node))
        {
            cut.Add((node.Id, other.Id));
            if (run.Random.Next(2) == 0)
                cut.Add((other.Id, node.Id));
        }

        run.Network.Cut(cut);
        run.Time.After(run.Random.NextInt64(2_000_000), () => run.Network.EndCut(cut));
    }

    // The first leader gets a tail that nobody else has, and there is a second failover while it is cut off. It returns when the next leader has just
    // begun, which then dies.
    private void CutOffAndCrash(ClusterNode first)
    {
        run.Trace($"nothing from node {first.Id} arrives");
        HashSet<(NodeId, NodeId)> cut = [.. run.Nodes.Where(other => other != first).Select(other => (first.Id, other.Id))];
        run.Network.Cut(cut);
        run.Time.After(run.Random.NextInt64(20_000, 300_000), () =>
        {
            first.Crash();
            AwaitLeader(beside: first, tries: 400, second =>
            {
                run.Tally.Count(ClusterFault.CutOffAndCrash);
                run.Network.EndCut(cut);
                first.Start();
                run.Time.After(run.Random.NextInt64(20 * run.Conditions.SyncUs), () => second.Restart(() => { }));
            });
        });
    }

    private void AwaitLeader(ClusterNode beside, int tries, Action<ClusterNode> then) => run.Time.After(5_000, () =>
    {
        if (run.Nodes.FirstOrDefault(node => node.Serves && node != beside) is { } leader && !run.Healed)
            then(leader);
        else if (tries > 0 && !run.Healed)
            AwaitLeader(beside, tries - 1, then);
        else
            beside.Start();
    });

    // Its wall clock is a year ahead for a while, and is then corrected.
    private void RunAhead(ClusterNode node, long forUs)
    {
        run.Trace($"the wall clock of node {node.Id} is a year ahead");
        node.JumpWallClock(_year);
        run.Time.After(forUs, () => node.JumpWallClock(-_year));
    }

    private void CutOffCoordinator(params IReadOnlyList<ClusterNode> nodes)
    {
        run.Trace($"nodes {string.Join(' ', nodes.Select(node => node.Id))} are cut off from the coordinator");
        foreach (var node in nodes)
            run.Coordinator.CutOff(node.Id);
        run.Time.After(run.Random.NextInt64(2_500_000), run.Coordinator.Reconnect);
    }

    private void CutOffCaller(RoutedClient client)
    {
        var nodes = run.Nodes.Where(_ => run.Random.Next(3) != 0).Select(static node => node.Id).ToArray();
        if (nodes.Length > 0)
            run.Tally.Count(ClusterFault.CutOffCaller);
        run.Trace($"caller {client.Number} is cut off from nodes {string.Join(' ', nodes)}");
        client.Network.Cut(nodes);
        run.Time.After(run.Random.NextInt64(2_500_000), client.Network.Heal);
    }

    private void RestoreCoordinator(bool raised)
    {
        run.Coordinator.Backup();
        run.Time.After(run.Random.NextInt64(100_000, 1_500_000), () =>
        {
            if (run.Healed)
                return;
            run.Coordinator.Restore(raised);
            run.Time.After(run.Random.NextInt64(200_000, 2_000_000), run.Coordinator.Repair);
        });
    }

    private void FillDisk(ClusterNode node)
    {
        run.Trace($"the disk of node {node.Id} is full");
        node.Disk.Fill(leftBytesMax: 32 << 10);
    }
}
