using KvCluster.Internal.V1;

namespace KvCluster.Simulation.Cluster;

/// <summary>Messages in flight between nodes, and between callers and nodes. They are encoded and, until everything is healed, may be lost,
/// duplicated, late or cut off.</summary>
/// <param name="run">The run.</param>
/// <param name="log">Gets every record that is sent to another node.</param>
internal sealed class ClusterNetwork(ClusterRun run, CommittedLog log)
{
    // Each cut ends by itself, independently of the others.
    private readonly List<HashSet<(NodeId From, NodeId To)>> _cuts = [];
    private readonly HashSet<(NodeId Node, ulong Epoch, ulong Change)> _snapshots = [];

    /// <summary>The number of snapshots that nodes have reported as installed.</summary>
    public int SnapshotsInstalled => _snapshots.Count;

    /// <summary>Whether messages from one node to another are dropped.</summary>
    public bool IsCut(NodeId from, NodeId to) => _cuts.Exists(cut => cut.Contains((from, to)));

    /// <summary>Drops everything in these directions from now on.</summary>
    public void Cut(HashSet<(NodeId From, NodeId To)> ways) => _cuts.Add(ways);

    /// <summary>Ends one cut.</summary>
    public void EndCut(HashSet<(NodeId From, NodeId To)> ways) => _cuts.Remove(ways);

    /// <summary>Ends all cuts.</summary>
    public void Heal() => _cuts.Clear();

    /// <summary>A frame is in flight to a node. It may be lost, duplicated or late.</summary>
    public void Send(NodeId from, NodeId to, Frame frame)
    {
        foreach (var body in frame.Append?.Bodies ?? frame.Tail?.Bodies ?? [])
            log.Add(body.Span, run.RealUs);
        if (frame.SnapshotAck is { Installed: true, Covers.Etag: { } covers })
            _snapshots.Add((from, covers.Epoch, covers.Change));
        if (!run.Healed && run.Chance(run.Conditions.LossPermille))
            return;
        // Encoded and decoded, as on a wire.
        var copy = Frame.Parser.ParseFrom(Google.Protobuf.MessageExtensions.ToByteArray(frame));
        for (var copies = !run.Healed && run.Chance(run.Conditions.DuplicationPermille) ? 2 : 1; copies > 0; copies--)
        {
            var late = !run.Healed && run.Chance(run.Conditions.LatePermille);
            run.Time.After(20 + run.Random.NextInt64(late ? run.Conditions.LateUs : 500), () =>
            {
                if (IsCut(from, to))
                    return;
                run.Transcript.Frame(run.NowUs, from.Value, to.Value, copy);
                run.NodeOf(to).Receive(copy);
            });
        }
    }

    /// <summary>A call is in flight to a node. It may be lost, or arrive when its caller has long given it up.</summary>
    public void Call(NodeId node, Action<ClusterNode> call)
    {
        if (!run.Healed && run.Chance(run.Conditions.CallLossPermille))
            return;
        var late = !run.Healed && run.Chance(run.Conditions.CallLossPermille);
        run.Time.After(20 + run.Random.NextInt64(late ? 2_000_000 : 300), () => call(run.NodeOf(node)));
    }

    /// <summary>A node's answer is in flight to the caller. It may be lost.</summary>
    public void Reply(Action answered)
    {
        if (!run.Healed && run.Chance(run.Conditions.CallLossPermille))
            return;
        run.Time.After(20 + run.Random.NextInt64(300), answered);
    }
}
