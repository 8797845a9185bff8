using KvCluster.Internal.V1;
using KvCluster.Node.Placement;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// What hosts and operators do about a shard's replicas. Nodes create and remove directories as the record says, and ask for a replacement of a lost
/// replica. An operator wants a node to have no replica, and the controller asks for what the placement lacks. The host's own planners decide
/// (<see cref="ReplacementPlan"/>, <see cref="MoveSelection"/>).
/// </summary>
internal sealed class Replacements(ClusterRun run)
{
    public const int Voters = 3;

    // Several restarts, and less than the time in which replicas must agree.
    private const long GoneAfterUs = 3_000_000;

    private readonly Dictionary<NodeId, long> _awaySinceUs = [];
    private readonly HashSet<NodeId> _leaving = [];

    /// <summary>The record's replicas work, and no change is wanted.</summary>
    public bool AreDone => run.Coordinator.Record.Replicas is var replicas && replicas.Count == Voters
        && replicas.All(replica => !replica.Learner && NodeOf(replica) is { Lost: false, Replica: not null } node && node.ReplicaId == replica.ReplicaId);

    /// <summary>No voter lags because it was added late, so one disk may fail.</summary>
    public bool AreWhole => run.Coordinator.Record.Replicas.Count(replica => !replica.Learner) == Voters;

    public void Start() => run.Time.After(run.Random.NextInt64(50_000, 300_000), Step);

    /// <summary>An operator wants a node to leave, so that another node gets its replica.</summary>
    public void Replace(ClusterNode node)
    {
        if (_leaving.Count > 0 || node.ReplicaId.IsNone)
            return;
        run.Trace($"node {node.Id} is to have no replica");
        run.Tally.Count(ClusterFault.Replace);
        _leaving.Add(node.Id);
    }

    private void Step()
    {
        var serving = run.Nodes.FirstOrDefault(static node => node.Serves);
        // Whoever still reaches the lost store goes on.
        var goesOn = serving is not null && run.Coordinator.ShowsOldTo(serving.Id);
        if (run.Coordinator.IsLost && !goesOn)
        {
            Start();
            return;
        }

        var record = goesOn ? run.Coordinator.OldRecord : run.Coordinator.Record;
        foreach (var replica in record.Replicas.Where(
            replica => !replica.Created && (!goesOn || (run.Coordinator.ShowsOldTo(replica.NodeId) && NodeOf(replica).Bound is null))))
        {
            if (NodeOf(replica).ReplicaId != replica.ReplicaId)
                NodeOf(replica).Create(replica.ReplicaId);
            run.Time.After(run.Random.NextInt64(20_000), () => run.Coordinator.MarkCreated(replica.ReplicaId));
        }

        _leaving.RemoveWhere(node => record.Replicas.All(replica => replica.NodeId != node));
        if (serving is { } leader && Wanted(record) is { Length: > 0 } wanted)
            leader.Admin.Replace(wanted[run.Random.Next(wanted.Length)]);
        Start();
    }

    // Requests of the nodes themselves and of the controller.
    private ReplacementRequest[] Wanted(ShardRecord record)
    {
        var present = run.Nodes.Where(static node => node.IsThere).Select(static node => node.Id).ToHashSet();
        foreach (var node in run.Nodes)
        {
            if (present.Contains(node.Id))
                _awaySinceUs.Remove(node.Id);
            else
                _awaySinceUs.TryAdd(node.Id, run.NowUs);
        }

        var gone = _awaySinceUs.Where(away => run.NowUs - away.Value >= GoneAfterUs).Select(static away => away.Key).ToHashSet();
        var own = record.Replicas.Where(replica => present.Contains(replica.NodeId) && replica.Created)
            .Select(replica => ReplacementPlan.Own(record, replica.NodeId, replica.ReplicaId, IsLost(replica), Voters)).OfType<ReplacementRequest>();
        var placed = MoveSelection.InOrder([record], present, gone, _leaving, Voters).Take(1)
            .Select(static move => new ReplacementRequest(move.Shard, move.FromNode, move.ToNode));
        return [.. own, .. placed];
    }

    // A missing directory counts as lost as well.
    private bool IsLost(ReplicaRecord replica) => NodeOf(replica) is var node && (node.Lost || node.ReplicaId != replica.ReplicaId);

    private ClusterNode NodeOf(ReplicaRecord replica) => run.NodeOf(replica.NodeId);
}
