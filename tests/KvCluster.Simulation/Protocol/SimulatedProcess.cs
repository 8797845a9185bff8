using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Replication;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// A process of a replica, with the state that dies with it: core, tree, waiting callers. It passes events to the core, one after the other, and
/// executes its effects.
/// </summary>
internal sealed class SimulatedProcess
{
    private readonly SimulationRun _run;
    private readonly SimulatedReplica _replica;
    private readonly FaultyDriver _driver;
    private readonly CallerWrites _writes;
    private readonly SimulatedSnapshots _snapshots;
    private readonly ulong _incarnation;
    private readonly Queue<Event> _events = new();
    private readonly Queue<Event> _atOnce = new();
    private bool _stepping;
    private bool _ended;
    private long _tickDueUs = long.MaxValue;
    private DigestsCompared? _compared;
    private bool _diskIsSlow;

    public SimulatedProcess(SimulationRun run, SimulatedReplica replica)
    {
        (_run, _replica) = (run, replica);
        _driver = new FaultyDriver(run, replica, Journal);
        _writes = new CallerWrites(this, _driver);
        Reads = new CallerReads(run, this, _driver);
        _snapshots = new SimulatedSnapshots(run, replica, this);
        _incarnation = (++replica.Disk.Starts << 32) | (uint)run.Random.Next();
        Tree = replica.Disk.Checkpoint.Copy();
        Published = Journal.Base.Etag;
        foreach (var record in Journal.Behind(Published).TakeWhile(record => record.Header.Etag <= replica.Disk.Control.Committed))
            Apply(record);
        var (shardRecord, revision) = (run.Coordinator.Record, run.Coordinator.Revision);
        var startup = new ReplicaStartup(
            new(0), _incarnation, _driver.Recovered(replica.Disk.Control), Published, shardRecord, revision, (ulong)run.Random.NextInt64(), Now);
        Core = new ReplicaCore(startup, Journal, run.Options);
    }

    public ReplicaCore Core { get; }

    public CallerReads Reads { get; }

    public MemoryJournal Journal => _replica.Disk.Journal;

    /// <summary>The published state.</summary>
    public SimulatedTree Tree { get; private set; }

    public Etag Published { get; private set; }

    /// <summary>The number of checkpoints that it keeps for others.</summary>
    public int Pins => _snapshots.Sources;

    /// <summary>The time of the node's clock.</summary>
    public long Now => _run.NowUs + (_run.NowUs * _replica.DriftPermille / 1000);

    /// <summary>It leads and accepts calls.</summary>
    public bool IsServing { get; private set; }

    /// <summary>Whether it may append its own records now.</summary>
    public bool MayAppend => !_ended && !_stepping && IsServing;

    public void Begin() => Step(Event.Tick.Instance);

    public void End() => _ended = true;

    public bool SameStateAs(SimulatedProcess other) => Published == other.Published && Tree.SameAs(other.Tree);

    public void Receive(Frame frame)
    {
        foreach (var told in _driver.Arriving(frame, Core, _replica.Disk.Control, Now))
            Step(told);
    }

    /// <summary>A caller's call. It is answered once, or never if the process ends.</summary>
    public void Call(SimulatedCall call)
    {
        if (!IsServing && call.WriteId == 0 && _driver.ReadsOn(Now))
            Reads.Answer(call);
        else if (!IsServing && call.WriteId == 0 && _run.Chance(700))
            Reads.ReadAtFollower(call);
        else if (!IsServing)
            call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
        else if (call.WriteId != 0)
            _writes.Add(call);
        else
            Reads.Read(call);
    }

    /// <summary>Passes an event to the core and executes its effects.</summary>
    public void Step(Event happened)
    {
        if (_ended)
            return;
        _events.Enqueue(happened);
        if (_stepping)
            return;
        _stepping = true;
        while (!_ended && (_atOnce.TryDequeue(out var next) || _events.TryDequeue(out next)))
        {
            Core.Step(next, Now);
            foreach (var effect in _driver.Executed([.. Core.Effects], Core, _replica.Disk.Control))
            {
                if (!_ended)
                    Execute(effect);
            }

            _driver.Stepped(Core);
        }

        _stepping = false;
        if (_ended)
            return;
        if (Core.DigestsCompared is { } compared && compared != _compared)
        {
            _compared = compared;
            _run.DigestsCompared++;
        }

        TellDisk();
        _writes.AppendBatches();
        ArrangeTick();
    }

    /// <summary>Writes a checkpoint and drops the journal that it covers.</summary>
    public void Checkpoint()
    {
        if (!Journal.TryFind(Published, out var covers) || Journal.Durable.Etag < Published || Published == Etag.None)
            return;
        // A real checkpoint keeps the journal that the older meta page needs. Here, in the worst case, everything covered is dropped.
        _replica.Disk.Checkpoint = Tree.Copy();
        Journal.Trim(covers.Name);
    }

    /// <summary>Queues an event that the core gets before any other.</summary>
    public void TellFirst(Event happened) => _atOnce.Enqueue(happened);

    /// <summary>Passes the next of these events to the core.</summary>
    public void StepFirst() => Step(_atOnce.Dequeue());

    /// <summary>Appends a record, which becomes durable after a while.</summary>
    public void Append(SimulatedRecord record)
    {
        var completed = Journal.Append(record);
        After(DrawSyncUs(), () =>
        {
            var before = Journal.Durable.Etag;
            completed();
            if (Journal.Durable.Etag != before)
                Step(Event.Durable.Instance);
        });
    }

    /// <summary>A snapshot replaces the state.</summary>
    public void Replace(SimulatedTree tree, Etag published) => (Tree, Published) = (tree, published);

    /// <summary>Draws the duration of a sync.</summary>
    public long DrawSyncUs() => _run.Random.NextInt64(_replica.SyncUs / 10, _replica.SyncUs + 1);

    /// <summary>Happens after a while in this process, or not at all.</summary>
    public void After(long delayUs, Action action) => _run.After(delayUs, () => Later(action));

    // As the node's disk does for a replica that has it alone.
    private void TellDisk()
    {
        if (Core.Pace.IsSlow == _diskIsSlow)
            return;
        _diskIsSlow = Core.Pace.IsSlow;
        _run.Trace($"node {_replica.Node}: disk is slow {_diskIsSlow}");
        Step(new Event.DiskHealth(_diskIsSlow));
    }

    private void Execute(Effect effect)
    {
        switch (effect)
        {
            case Effect.Send send:
                _driver.Leaving(send.Frame);
                _run.Network.Send(_replica.Node, (int)send.Node.Value, send.Frame);
                if (MomentOf(send.Frame) is { } moment)
                    _run.Reached(_replica, moment);
                break;
            case Effect.SendBodies send:
                SendBodies(send);
                break;
            case Effect.WriteControl write:
                WriteControl(write.Control, _driver.Written(write.Control, _replica.Disk.Control, Core));
                break;
            case Effect.AppendBodies append:
                foreach (var body in append.Bodies)
                    Append((SimulatedRecord)body);
                break;
            case Effect.Truncate truncate:
                Violation.Unless(truncate.LastKept.Etag >= Published, Rule.Contract, $"node {_replica.Node} cuts to {truncate.LastKept}, below what it has "
                    + $"applied, {Published}");
                Violation.Unless(
                    _replica.Disk.Control.Acknowledged <= truncate.LastKept.Etag || Core.Role == ReplicaRole.Recovering, Rule.Contract,
                    "a cut below the acknowledged etag of the control file");
                Journal.Truncate(truncate.LastKept);
                After(DrawSyncUs(), () =>
                {
                    Journal.FinishCut();
                    Step(Event.Truncated.Instance);
                });
                _run.Reached(_replica, Moment.CutBegun);
                break;
            case Effect.Commit commit:
                foreach (var record in Journal.Behind(Published).TakeWhile(record => record.Header.Etag <= commit.Committed).ToList())
                    Apply(record);
                Violation.Unless(
                    Published == commit.Committed, Rule.Contract, $"node {_replica.Node} is to commit {commit.Committed}, its journal gives {Published}");
                _writes.AnswerPublished();
                Reads.AnswerPublished();
                break;
            case Effect.ReadIndexKnown known:
                Reads.LeaderTold(known.ReadIdLast, known.Committed);
                break;
            case Effect.ReadIndexRefused refused:
                Reads.LeaderSilent(refused.ReadIdLast);
                break;
            case Effect.ReadRecord read:
                _run.Coordinator.Read(_replica.Node, (record, revision) => Later(() => Step(new Event.ShardRecordRead(read.ReadId, record, revision))));
                break;
            case Effect.CompareAndSet set:
                _run.Coordinator.CompareAndSet(_replica.Node, set.Record, set.Revision, (outcome, revision) =>
                    Later(() => Step(new Event.CompareAndSetDone(set.SetId, _driver.Heard(outcome), revision))));
                _run.Reached(_replica, Moment.TransactionSent);
                break;
            case Effect.StartLeading start:
                _writes.StartLeading(start.Epoch);
                _run.Reached(_replica, Moment.LeadingStarted);
                break;
            case Effect.Serving serving:
                IsServing = serving.On;
                if (!serving.On)
                    _driver.ServingEnded(Core);
                _run.Trace($"node {_replica.Node} serving {serving.On} in epoch {_writes.Epoch}");
                if (serving.On)
                {
                    _run.Checker.OnServing(_writes.Epoch, _replica.Id, _incarnation);
                    _run.Reached(_replica, Moment.ServingStarted);
                }

                break;
            case Effect.StopLeading:
                _writes.StopLeading();
                break;
            case Effect.ReadsConfirmed confirmed:
                Reads.Confirmed(confirmed.ReadIdLast);
                break;
            case Effect.ReadsRefused refused:
                Reads.Refused(refused.ReadIdLast);
                break;
            case Effect.TakeDigest take:
                Violation.Unless(Published == take.Etag, Rule.Contract, $"node {_replica.Node} is to take a digest of {take.Etag} at {Published}");
                var digest = Tree.Digest();
                After(_run.Random.NextInt64(4 * DrawSyncUs()), () => Step(new Event.DigestTaken(take.TakeId, digest)));
                break;
            case Effect.Quarantine quarantine:
                throw new Violation(Rule.GoesOn, $"node {_replica.Node} is quarantined: {quarantine.Reason}");
            case Effect.OpenSnapshot open:
                _snapshots.Open(open.Replica);
                break;
            case Effect.SendSnapshotChunk send:
                _snapshots.SendChunk(send);
                break;
            case Effect.CloseSnapshot close:
                _snapshots.Close(close.Replica);
                break;
            case Effect.StoreSnapshotChunk store:
                _snapshots.StoreChunk(store.Chunk);
                break;
            case Effect.VerifySnapshot verify:
                _snapshots.Verify(verify.Covers);
                break;
            case Effect.DropSnapshot:
                _snapshots.Drop();
                break;
            case Effect.InstallSnapshot install:
                _snapshots.Install(install);
                break;
            case Effect.LeaderKnown known:
                if (!known.Replica.IsNone)
                    _run.LeaderHint = (int)known.Node.Value;
                break;
            case Effect.OrderEnded ended:
                _run.Trace($"node {_replica.Node}: {(ended.OrderId == 0 ? "transfer" : "change of replicas")} done: {ended.Done} ({ended.Reason})");
                if (ended is { Done: true, OrderId: 0 })
                    _run.LeadershipsTransferred++;
                else if (ended.Done)
                    _run.ReplicasChanged++;
                break;
            case Effect.Alarm alarm:
                _run.OnAlarm(_replica, alarm.Text);
                break;
            case Effect.Halt halt:
                throw new Violation(Rule.GoesOn, $"node {_replica.Node} halts: {halt.Reason}");
            case Effect.Log log:
                _run.Trace($"node {_replica.Node}: {log.Text}");
                break;
        }
    }

    private static Moment? MomentOf(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Prepare => Moment.PrepareSent,
        Frame.PayloadOneofCase.Prepared => Moment.PreparedSent,
        Frame.PayloadOneofCase.FetchTail => Moment.TailAsked,
        Frame.PayloadOneofCase.Release => Moment.ReleaseSent,
        Frame.PayloadOneofCase.Ack => Moment.AckSent,
        Frame.PayloadOneofCase.Match => Moment.MatchSent,
        _ => null,
    };

    private void WriteControl(HardState wanted, HardState control)
    {
        Violation.Unless(
            control.Committed <= Journal.Durable.Etag || control.Committed == _replica.Disk.Control.Committed,
            Rule.Contract,
            $"node {_replica.Node} writes a committed etag, {control.Committed}, that its journal, durable up to {Journal.Durable.Name}, does not reach");
        var rises = control.PromisedEpoch > _replica.Disk.Control.PromisedEpoch;
        _replica.Disk.BeginControl(control);
        After(DrawSyncUs(), () =>
        {
            _replica.Disk.EndControl(control);
            Step(new Event.ControlWritten(wanted));
        });
        _run.Reached(_replica, rises ? Moment.PromiseWriting : Moment.ControlWriting);
    }

    private void SendBodies(Effect.SendBodies send)
    {
        var bodies = send.Frame.PayloadCase == Frame.PayloadOneofCase.Append ? send.Frame.Append.Bodies : send.Frame.Tail.Bodies;
        var last = send.After;
        long bytes = 0;
        // The preceding record must be here; otherwise the journal no longer reaches back that far.
        if (Journal.TryFind(send.After.Etag, out _))
        {
            foreach (var record in Journal.Behind(send.After.Etag))
            {
                if (bytes > 0 && bytes + record.Body.Length > send.BytesMax)
                    break;
                bodies.Add(ByteString.CopyFrom(record.Body));
                bytes += record.Body.Length;
                last = record.Header.Name;
            }
        }

        if (send.Frame.PayloadCase == Frame.PayloadOneofCase.Append)
            TellFirst(new Event.BodiesSent(send.Frame.ReceiverId, send.Frame.Epoch, last, bytes));
        if (bytes > 0 || send.Frame.PayloadCase == Frame.PayloadOneofCase.Tail)
            _run.Network.Send(_replica.Node, (int)send.Node.Value, send.Frame);
    }

    private void Apply(SimulatedRecord record)
    {
        _run.Checker.OnCommitted(_replica.Id, record);
        Tree.Apply(record);
        Published = record.Header.Etag;
    }

    private void Later(Action action) => _replica.Deliver(() =>
    {
        if (!_ended)
            action();
    });

    private void ArrangeTick()
    {
        if (Core.NextTickUs == long.MaxValue || Core.NextTickUs == _tickDueUs)
            return;
        var dueUs = _tickDueUs = Core.NextTickUs;
        var waitUs = Math.Max(0, dueUs - Now) * 1000 / (1000 + _replica.DriftPermille);
        After(waitUs + 1, () =>
        {
            if (_tickDueUs != dueUs)
                return;
            _tickDueUs = long.MaxValue;
            Step(Event.Tick.Instance);
        });
    }
}
