using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Holds the shard's record and misbehaves on purpose: answers late or not at all, answers "unknown" for a transaction that was executed, was not, or
/// will be seconds later, and drops watch events.
/// </summary>
internal sealed class SimulatedCoordinator(SimulationRun run, ShardRecord record)
{
    private readonly HashSet<int> _cutOff = [];

    public ShardRecord Record { get; private set; } = record;

    public long Revision { get; private set; } = 1;

    public void CutOff(int node) => _cutOff.Add(node);

    public void Heal() => _cutOff.Clear();

    public void Read(int node, Action<ShardRecord?, long> done)
    {
        if (_cutOff.Contains(node))
        {
            run.After(300_000, () => done(null, 0));
            return;
        }

        run.After(Delay(), () =>
        {
            var (record, revision) = (Record, Revision);
            run.After(Delay(), () => done(record, revision));
        });
    }

    public void CompareAndSet(int node, ShardRecord put, long expectedRevision, Action<SetOutcome, long> done)
    {
        if (_cutOff.Contains(node))
        {
            run.After(300_000, () => done(SetOutcome.Unknown, 0));
            return;
        }

        if (!run.Healed && run.Chance(run.Conditions.AmbiguousPermille))
        {
            var fate = run.Random.Next(3);
            if (fate != 0)
                run.After(fate == 1 ? Delay() : run.Random.NextInt64(3_000_000), () => TryPut(put, expectedRevision));
            run.After(Delay() * 2, () => done(SetOutcome.Unknown, 0));
            return;
        }

        run.After(Delay(), () =>
        {
            var won = TryPut(put, expectedRevision);
            var revision = Revision;
            run.After(Delay(), () => done(won ? SetOutcome.Won : SetOutcome.Lost, revision));
        });
    }

    /// <summary>A node has created the directory of a replica in the record, and marks that in the current record.</summary>
    public void MarkCreated(ReplicaId replica)
    {
        if (CreatedMark.On(Record, replica) is { } marked)
            TryPut(marked, Revision);
    }

    private bool TryPut(ShardRecord put, long expectedRevision)
    {
        if (Revision != expectedRevision)
            return false;
        Record = put;
        Revision++;
        var (record, revision) = (Record, Revision);
        run.After(Delay(), run.CreateReplicas);
        foreach (var replica in run.Replicas.Where(replica => !_cutOff.Contains(replica.Node) && !run.Chance(100)))
            run.After(Delay(), () => replica.Watched(record, revision));
        return true;
    }

    private long Delay() => run.Random.NextInt64(200, run.Chance(20) ? 400_000 : 3_000);
}
