using KvCluster.Replication;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// What hosts and operators do about a shard's replicas, one step of the record at a time: a lost one is removed, a node without one gets a learner, a learner
/// that has caught up votes, or takes the place of a replica that is to leave; nodes make and remove directories as the record says.
/// </summary>
internal sealed class Replacements(ClusterRun run)
{
    private const int Voters = 3;

    private ulong _replicaIdLast = 1_000;
    private ulong _leaving;

    /// <summary>The record's replicas work, and no change is wanted.</summary>
    public bool AreDone => run.Coordinator.Record.Replicas is var replicas && replicas.Count == Voters
        && replicas.All(replica => !replica.Learner && NodeOf(replica) is { Lost: false, Replica: not null } node && node.ReplicaId == replica.Replica);

    /// <summary>No voter lacks what the others have because it came late: one disk may fail.</summary>
    public bool AreWhole => run.Coordinator.Record.Replicas.Count(replica => !replica.Learner) == Voters;

    public void Start() => run.Time.After(run.Random.NextInt64(50_000, 300_000), Step);

    /// <summary>Somebody wants another replica in the place of this node's.</summary>
    public void Replace(ClusterNode node)
    {
        if (_leaving != 0 || node.ReplicaId == 0)
            return;
        run.Trace($"replica {node.ReplicaId:x} is to be replaced");
        run.Tally.Count(ClusterFault.Replace);
        _leaving = node.ReplicaId;
    }

    private void Step()
    {
        var record = run.Coordinator.Record;
        foreach (var replica in record.Replicas.Where(replica => !replica.Created))
        {
            if (NodeOf(replica).ReplicaId != replica.Replica)
                NodeOf(replica).Create(replica.Replica);
            run.Time.After(run.Random.NextInt64(20_000), () => run.Coordinator.MarkCreated(replica.Replica));
        }

        if (record.Replicas.All(replica => replica.Replica != _leaving))
            _leaving = 0;
        if (run.Nodes.FirstOrDefault(node => node.Serves) is { } leader)
        {
            // A leader does not remove itself.
            if (leader.ReplicaId == _leaving)
                leader.HandOver(0);
            else if (NextChange(record) is { } change)
                leader.ChangeReplicas(change);
        }

        Start();
    }

    private ReplicaChange? NextChange(ShardRecord record)
    {
        if (record.Replicas.FirstOrDefault(replica => replica.Created && (NodeOf(replica).Lost || NodeOf(replica).ReplicaId != replica.Replica)) is { } lost)
            return new ReplicaChange.Remove(lost.Replica);
        var voters = record.Replicas.Count(replica => !replica.Learner);
        if (record.Replicas.FirstOrDefault(replica => replica.Learner) is { } learner)
        {
            return voters < Voters ? new ReplicaChange.Promote(learner.Replica, Voters)
                : _leaving == 0 ? new ReplicaChange.Remove(learner.Replica)
                : new ReplicaChange.Swap(_leaving, learner.Replica);
        }

        var free = run.Nodes.Where(node => record.Replicas.All(replica => replica.Node != node.Id)).ToArray();
        if (free.Length == 0 || (voters == Voters && (_leaving == 0 || run.Healed)))
            return null;
        return new ReplicaChange.AddLearner(++_replicaIdLast, free[run.Random.Next(free.Length)].Id);
    }

    private ClusterNode NodeOf(ReplicaRecord replica) => run.Nodes[(int)replica.Node - 1];
}
