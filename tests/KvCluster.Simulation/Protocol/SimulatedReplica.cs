using KvCluster.Internal.V1;
using KvCluster.Replication;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// One replica on one node: the real <see cref="ReplicaCore"/>, driven as the node drives it, over a journal and a control file in memory. State that
/// survives a crash is in <see cref="ReplicaDisk"/>; state that is lost is in <see cref="SimulatedProcess"/>.
/// </summary>
internal sealed class SimulatedReplica
{
    private readonly SimulationRun _run;
    private SimulatedProcess? _process;
    private int _paused;
    private List<Action> _whilePaused = [];

    public SimulatedReplica(SimulationRun run, int node, ReplicaId id)
    {
        _run = run;
        Node = node;
        Id = id;
        Disk = new ReplicaDisk(run.Random, id);
        var drift = run.Conditions.DriftPermille;
        // In half of the runs as far apart as declared.
        DriftPermille = run.Random.Next(2) == 0 ? run.Random.Next(-drift, drift + 1) : run.Random.Next(2) == 0 ? drift : -drift;
        SyncUs = run.Conditions.SyncUs;
    }

    public int Node { get; }

    public ReplicaId Id { get; }

    /// <summary>The state that survives a crash.</summary>
    public ReplicaDisk Disk { get; }

    public int DriftPermille { get; }

    public long SyncUs { get; set; }

    /// <summary>How long it verifies a snapshot. 0 means a random time.</summary>
    public long VerifiesForUs { get; set; }

    public bool Up => _process is not null;

    /// <summary>The number of checkpoints that it keeps for others.</summary>
    public int Pins => _process?.Pins ?? 0;

    public bool Leads => _process is { Core.Role: ReplicaRole.Leader };

    public bool Stands => _process is { Core.Role: ReplicaRole.Candidate };

    /// <summary>Its journal has everything that it ever acknowledged.</summary>
    public bool IsWhole => _process is not null && _process.Core.Role != ReplicaRole.Recovering;

    /// <summary>Its journal was damaged at some time.</summary>
    public bool LostTail { get; private set; }

    /// <summary>The end of its synced journal.</summary>
    public Etag Durable => Disk.Journal.Durable.Etag;

    public Etag Published => _process?.Published ?? Etag.None;

    public string State =>
        _process is null ? "down" : $"{_process.Core.Role} epoch {_process.Core.Epoch} last {Disk.Journal.Last.Name} committed {_process.Core.Committed}";

    public bool SameStateAs(SimulatedReplica other) => _process!.SameStateAs(other._process!);

    public void Start()
    {
        // A node does not start a replica that the record no longer names.
        if (_run.Coordinator.Record.Replicas.All(replica => replica.ReplicaId != Id))
            return;
        _run.Trace($"node {Node} starts, journal ends at {Disk.Journal.Last.Name}, control {Disk.Control.PromisedEpoch}");
        Disk.RememberLoss();
        _process = new SimulatedProcess(_run, this);
        _process.Begin();
    }

    public void Crash()
    {
        if (_process is null)
            return;
        _run.Trace($"node {Node} crashes");
        _process.End();
        _process = null;
        _whilePaused.Clear();
        Disk.Crash();
    }

    /// <summary>While it is down, loses so much of the end of its journal that the control file reveals it.</summary>
    public void LoseTail()
    {
        if (!Disk.TryLoseTail())
            return;
        LostTail = true;
        _run.Trace($"node {Node} has lost its journal behind {Disk.Journal.Last.Name}");
    }

    /// <summary>Stops the process as SIGSTOP does. Everything that reaches it waits.</summary>
    public void Pause(long forUs)
    {
        _run.Trace($"node {Node} is stopped for {forUs / 1000} ms");
        _paused++;
        _run.After(forUs, () =>
        {
            _paused--;
            var waiting = _whilePaused;
            _whilePaused = [];
            foreach (var action in waiting)
                Deliver(action);
        });
    }

    public void Receive(Frame frame) => InProcess(process => process.Receive(frame));

    public void NodeSilent(NodeId node) => InProcess(process => process.Step(new Event.NodeSilent(node)));

    public void Watched(ShardRecord record, long revision) => InProcess(process => process.Step(new Event.ShardRecordRead(0, record, revision)));

    public void Call(SimulatedCall call) => InProcess(process => process.Call(call));

    /// <summary>An operator asks it to transfer its leadership.</summary>
    public void Transfer(ReplicaId to) => InProcess(process => process.Step(new Event.TransferAsked(0, to)));

    /// <summary>An operator asks it, as the leader, to change the shard's replicas.</summary>
    public void Change(ReplicaChange change) => InProcess(process => process.Step(new Event.ReplicasAsked(1, change)));

    /// <summary>Writes a checkpoint and drops the journal that it covers.</summary>
    public void Checkpoint() => InProcess(process => process.Checkpoint());

    /// <summary>Acts now, or when a paused process resumes.</summary>
    public void Deliver(Action action)
    {
        if (_paused > 0)
            _whilePaused.Add(action);
        else
            action();
    }

    // Acts in the process that runs at that time, or not at all.
    private void InProcess(Action<SimulatedProcess> action) => Deliver(() =>
    {
        if (_process is not null)
            action(_process);
    });
}
