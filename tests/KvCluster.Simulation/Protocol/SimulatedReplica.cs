using Google.Protobuf;
using KvCluster.Replication;
using KvCluster.V1;

namespace KvCluster.Simulation.Protocol;

/// <summary>What a client asks of a replica. The answer comes once, or never if the replica dies.</summary>
internal sealed record SimulatedCall(int Key, long WriteId, long? Expected, bool Quorum, Action<SimulatedAnswer> Answer);

/// <summary>How a call ended.</summary>
internal enum SimulatedOutcome
{
    Applied,
    Read,
    NotLeader,
    Unknown,
}

/// <summary>An answer. A failed condition is a read: <paramref name="Value"/> is what was found at <paramref name="Etag"/>.</summary>
internal readonly record struct SimulatedAnswer(SimulatedOutcome Outcome, Etag Etag, long Value);

/// <summary>
/// One replica on one node: the real <see cref="ReplicaCore"/>, driven as the node drives it, over a journal and a control file in memory. What a crash
/// leaves lives here; what it loses is a <see cref="Process"/>.
/// </summary>
internal sealed class SimulatedReplica
{
    private readonly SimulationRun _run;
    private readonly MemoryJournal _journal;
    private ControlRecord _control;
    private ControlRecord? _controlWriting;
    private Dictionary<int, (long WriteId, Etag Etag)> _checkpoint = [];
    private Process? _process;
    private int _paused;
    private List<Action> _whilePaused = [];

    public SimulatedReplica(SimulationRun run, int node, ulong id)
    {
        _run = run;
        Node = node;
        Id = id;
        _journal = new MemoryJournal(run.Random);
        _control = new ControlRecord { ReplicaId = id };
        DriftPermille = run.Random.Next(-run.Scenario.DriftPermille, run.Scenario.DriftPermille + 1);
        SyncUs = run.Scenario.SyncUs;
    }

    public int Node { get; }

    public ulong Id { get; }

    public int DriftPermille { get; }

    public long SyncUs { get; set; }

    public bool Up => _process is not null;

    public bool Leads => _process is { Core.Role: ReplicaRole.Leader };

    public Etag Published => _process?.Published ?? Etag.None;

    public string State => _process is null ? "down" : $"{_process.Core.Role} epoch {_process.Core.Epoch} last {_journal.Last.Name} committed {_process.Core.Committed}";

    public bool SameStateAs(SimulatedReplica other) => _process!.SameStateAs(other._process!);

    public void Start()
    {
        // A node does not start a replica that the record no longer names.
        if (_run.Coordinator.Record.Replicas.All(replica => replica.Replica != Id))
            return;
        _run.Trace($"node {Node} starts, journal ends at {_journal.Last.Name}, control {_control.PromisedEpoch}");
        _process = new Process(this);
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
        _journal.Crash();
        if (_controlWriting is not null && _run.Random.Next(2) == 0)
            _control = _controlWriting;
        _controlWriting = null;
    }

    /// <summary>Stops the process as SIGSTOP does: everything that reaches it waits.</summary>
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

    public void Receive(Frame frame) => InProcess(process => process.Step(new Event.FrameReceived(frame)));

    public void Watched(ShardRecord record, long revision) => InProcess(process => process.Step(new Event.ShardRecordRead(0, record, revision)));

    public void Call(SimulatedCall call) => InProcess(process => process.Call(call));

    /// <summary>An operator asks it to hand its leadership over.</summary>
    public void Transfer(ulong to) => InProcess(process => process.Step(new Event.TransferAsked(0, to)));

    /// <summary>An operator asks it, as the leader, to change the shard's replicas.</summary>
    public void Change(ReplicaChange change) => InProcess(process => process.Step(new Event.ReplicasAsked(1, change)));

    /// <summary>Writes a checkpoint and drops the journal that it covers.</summary>
    public void Checkpoint() => InProcess(process => process.Checkpoint());

    // Reaches the process that runs at that time, or none.
    private void InProcess(Action<Process> action) => Deliver(() =>
    {
        if (_process is not null)
            action(_process);
    });

    private void Deliver(Action action)
    {
        if (_paused > 0)
            _whilePaused.Add(action);
        else
            action();
    }

    /// <summary>What dies with the process: core, tree, waiting callers.</summary>
    private sealed class Process
    {
        private readonly SimulatedReplica _replica;
        private readonly ulong _incarnation;
        private readonly Queue<Event> _events = new();
        private readonly Queue<Event> _atOnce = new();
        private readonly List<(Etag Etag, SimulatedCall Call, long? Found)> _waiting = [];
        private readonly Queue<SimulatedCall> _queue = new();
        private readonly Dictionary<long, SimulatedCall> _reads = [];
        private readonly Dictionary<long, SimulatedCall> _followerReads = [];
        private readonly List<(Etag Committed, SimulatedCall Call)> _awaitingState = [];
        private readonly Dictionary<ulong, (RecordName Covers, byte[] Bytes)> _sources = [];
        private Dictionary<int, (long WriteId, Etag Etag)> _state;
        private Dictionary<int, (long WriteId, Etag Etag)> _unpublished = [];
        private byte[] _incoming = [];
        private ulong _leading;
        private bool _serving;
        private bool _stepping;
        private bool _ended;
        private long _tickDueUs = long.MaxValue;
        private long _readIdLast;
        private long _followerReadIdLast;

        public Process(SimulatedReplica replica)
        {
            _replica = replica;
            _incarnation = (ulong)Run.Random.NextInt64(1, long.MaxValue);
            _state = new(replica._checkpoint);
            Published = replica._journal.Base.Etag;
            foreach (var record in replica._journal.Behind(Published).TakeWhile(record => record.Header.Etag <= replica._control.Committed))
                Apply(record);
            var (shardRecord, revision) = (Run.Coordinator.Record, Run.Coordinator.Revision);
            var startup = new ReplicaStartup(0, _incarnation, replica._control, Published, shardRecord, revision, (ulong)Run.Random.NextInt64(), Now);
            Core = new ReplicaCore(startup, replica._journal, Run.Options);
        }

        public ReplicaCore Core { get; }

        public Etag Published { get; private set; }

        private SimulationRun Run => _replica._run;

        private MemoryJournal Journal => _replica._journal;

        private long Now => Run.NowUs + (Run.NowUs * _replica.DriftPermille / 1000);

        public void Begin() => Step(Event.Tick.Instance);

        public void End() => _ended = true;

        public bool SameStateAs(Process other) => Published == other.Published && _state.Count == other._state.Count && _state.All(pair => other._state[pair.Key] == pair.Value);

        public void Call(SimulatedCall call)
        {
            if (!_serving && call.WriteId == 0 && Run.Chance(700))
            {
                _followerReads[++_followerReadIdLast] = call;
                Step(new Event.FollowerReadArrived(_followerReadIdLast));
            }
            else if (!_serving)
            {
                call.Answer(new SimulatedAnswer(SimulatedOutcome.NotLeader, Etag.None, 0));
            }
            else if (call.WriteId != 0)
            {
                _queue.Enqueue(call);
                AppendBatches();
            }
            else
            {
                Read(call);
            }
        }

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
                foreach (var effect in Core.Effects.ToArray())
                {
                    if (!_ended)
                        Execute(effect);
                }
            }

            _stepping = false;
            if (_ended)
                return;
            AppendBatches();
            ArrangeTick();
        }

        public void Checkpoint()
        {
            if (!Journal.TryFind(Published, out var covers) || Journal.Durable.Etag < Published || Published == Etag.None)
                return;
            // A real checkpoint keeps the journal from the older meta page on; here the worst case, everything covered goes.
            _replica._checkpoint = new(_state);
            Journal.Trim(covers.Name);
        }

        private void Execute(Effect effect)
        {
            switch (effect)
            {
                case Effect.Send send:
                    Run.Network.Send(_replica.Node, (int)send.Node, send.Frame);
                    Run.Narrow(_replica, send.Frame.PayloadCase is Frame.PayloadOneofCase.Prepared or Frame.PayloadOneofCase.Release or Frame.PayloadOneofCase.Prepare or Frame.PayloadOneofCase.FetchTail);
                    break;
                case Effect.SendBodies send:
                    SendBodies(send);
                    break;
                case Effect.WriteControl write:
                    _replica._controlWriting = write.Control;
                    After(SyncUs(), () =>
                    {
                        _replica._control = write.Control;
                        _replica._controlWriting = null;
                        Step(new Event.ControlWritten(write.Control));
                    });
                    Run.Narrow(_replica, true);
                    break;
                case Effect.AppendBodies append:
                    foreach (var body in append.Bodies.Skip(append.First))
                    {
                        Violation.Unless(SimulatedRecord.TryParse(body.Span, out var record), "a damaged body is appended");
                        Append(record);
                    }

                    break;
                case Effect.Cut cut:
                    Violation.Unless(cut.LastKept.Etag >= Published, $"node {_replica.Node} cuts to {cut.LastKept}, below what it has applied, {Published}");
                    Violation.Unless(_replica._control.Acknowledged <= cut.LastKept.Etag || Core.Role == ReplicaRole.Refilling, "a cut below the acknowledged etag of the control file");
                    Journal.Cut(cut.LastKept);
                    After(SyncUs(), () =>
                    {
                        Journal.FinishCut();
                        Step(Event.CutDone.Instance);
                    });
                    Run.Narrow(_replica, true);
                    break;
                case Effect.Commit commit:
                    foreach (var record in Journal.Behind(Published).TakeWhile(record => record.Header.Etag <= commit.Committed).ToList())
                        Apply(record);
                    Violation.Unless(Published == commit.Committed, $"node {_replica.Node} is to commit {commit.Committed}, its journal gives {Published}");
                    AnswerWaiting();
                    AnswerFollowerReads();
                    break;
                case Effect.ReadIndexKnown known:
                    foreach (var id in _followerReads.Keys.Where(id => id <= known.ReadIdLast).ToList())
                    {
                        _followerReads.Remove(id, out var call);
                        _awaitingState.Add((known.Committed, call!));
                    }

                    AnswerFollowerReads();
                    break;
                case Effect.ReadIndexRefused refused:
                    foreach (var id in _followerReads.Keys.Where(id => id <= refused.ReadIdLast).ToList())
                    {
                        _followerReads.Remove(id, out var call);
                        call!.Answer(new SimulatedAnswer(SimulatedOutcome.NotLeader, Etag.None, 0));
                    }

                    break;
                case Effect.ReadRecord read:
                    Run.Coordinator.Read(_replica.Node, (record, revision) => Later(() => Step(new Event.ShardRecordRead(read.ReadId, record, revision))));
                    break;
                case Effect.CompareAndSet set:
                    Run.Coordinator.CompareAndSet(_replica.Node, set.Record, set.Revision, (outcome, revision) =>
                        Later(() => Step(new Event.CompareAndSetDone(set.SetId, outcome, revision))));
                    Run.Narrow(_replica, true);
                    break;
                case Effect.StartLeading start:
                    _leading = start.Epoch;
                    _unpublished = new(_state);
                    foreach (var record in Journal.Behind(Published))
                        Apply(_unpublished, record);
                    AppendOwn([]);
                    break;
                case Effect.Serving serving:
                    _serving = serving.On;
                    Run.Trace($"node {_replica.Node} serving {serving.On} in epoch {_leading}");
                    if (serving.On)
                    {
                        Run.Checker.OnServing(_leading, _replica.Id, _incarnation);
                        Run.Narrow(_replica, true);
                    }

                    break;
                case Effect.StopLeading:
                    StopLeading();
                    break;
                case Effect.ReadsConfirmed confirmed:
                    foreach (var id in _reads.Keys.Where(id => id <= confirmed.ReadIdLast).ToList())
                    {
                        _reads.Remove(id, out var call);
                        AnswerRead(call!);
                    }

                    break;
                case Effect.ReadsRefused refused:
                    foreach (var id in _reads.Keys.Where(id => id <= refused.ReadIdLast).ToList())
                    {
                        _reads.Remove(id, out var call);
                        call!.Answer(new SimulatedAnswer(SimulatedOutcome.NotLeader, Etag.None, 0));
                    }

                    break;
                case Effect.OpenSnapshot open:
                    var covers = Journal.TryFind(Published, out var published) ? published.Name : Journal.Base;
                    var bytes = SnapshotBytes();
                    _sources[open.Replica] = (covers, bytes);
                    Run.Trace($"node {_replica.Node} opens a snapshot at {covers} for replica {open.Replica}");
                    After(SyncUs(), () => Step(new Event.SnapshotOpened(open.Replica, covers, bytes.Length)));
                    break;
                case Effect.SendSnapshotChunk send:
                    var source = _sources[send.Frame.Receiver].Bytes;
                    send.Frame.SnapshotChunk.Data = ByteString.CopyFrom(source.AsSpan((int)send.Frame.SnapshotChunk.Offset, send.Bytes));
                    Run.Network.Send(_replica.Node, (int)send.Node, send.Frame);
                    break;
                case Effect.CloseSnapshot close:
                    _sources.Remove(close.Replica);
                    break;
                case Effect.StoreSnapshotChunk store:
                    StoreChunk(store.Chunk);
                    break;
                case Effect.InstallSnapshot install:
                    After(SyncUs() * 2, () => Install(install));
                    Run.Narrow(_replica, true);
                    break;
                case Effect.LeaderKnown known:
                    if (known.Replica != 0)
                        Run.LeaderHint = (int)known.Node;
                    break;
                case Effect.OrderEnded ended:
                    Run.Trace($"node {_replica.Node}: {(ended.OrderId == 0 ? "hand-over" : "change of replicas")} done: {ended.Done} ({ended.Reason})");
                    if (ended is { Done: true, OrderId: 0 })
                        Run.LeadershipsHandedOver++;
                    else if (ended.Done)
                        Run.ReplicasChanged++;
                    break;
                case Effect.Alarm alarm:
                    Run.OnAlarm(_replica, alarm.Text);
                    break;
                case Effect.Halt halt:
                    throw new Violation($"node {_replica.Node} halts: {halt.Reason}");
                case Effect.Log log:
                    Run.Trace($"node {_replica.Node}: {log.Text}");
                    break;
            }
        }

        private void SendBodies(Effect.SendBodies send)
        {
            var bodies = send.Frame.PayloadCase == Frame.PayloadOneofCase.Append ? send.Frame.Append.Bodies : send.Frame.Tail.Bodies;
            var last = send.After;
            long bytes = 0;
            // What precedes must be here, else the journal no longer reaches back that far.
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
                _atOnce.Enqueue(new Event.BodiesSent(send.Frame.Receiver, send.Frame.Epoch, last, bytes));
            if (bytes > 0 || send.Frame.PayloadCase == Frame.PayloadOneofCase.Tail)
                Run.Network.Send(_replica.Node, (int)send.Node, send.Frame);
        }

        private void Append(SimulatedRecord record)
        {
            var completed = Journal.Append(record);
            After(SyncUs(), () =>
            {
                var before = Journal.Durable.Etag;
                completed();
                if (Journal.Durable.Etag != before)
                    Step(Event.Durable.Instance);
            });
        }

        private JournalRecord AppendOwn(SimulatedWrite[] writes)
        {
            var change = Journal.Last.Etag.Change + (ulong)Math.Max(1, writes.Length);
            var record = SimulatedRecord.Create(new Etag(_leading, change), Journal.Last.Name, writes);
            Apply(_unpublished, record);
            Append(record);
            _atOnce.Enqueue(new Event.RecordAppended(record.Header));
            return record.Header;
        }

        // One merged transaction of what is queued; conditions see the newest unpublished state.
        private void AppendBatches()
        {
            while (!_ended && !_stepping && _serving && _queue.Count > 0 && Journal.Writing < 2)
            {
                var writes = new List<SimulatedWrite>();
                var calls = new List<SimulatedCall>();
                var failed = new List<(SimulatedCall Call, long Found)>();
                while (writes.Count < 8 && _queue.TryDequeue(out var call))
                {
                    var found = writes.Exists(write => write.Key == call.Key)
                        ? writes.Last(write => write.Key == call.Key).WriteId
                        : _unpublished.GetValueOrDefault(call.Key).WriteId;
                    if (call.Expected is { } expected && expected != found)
                    {
                        // Evaluated on the records before this batch; on what this batch changes it is tried again.
                        if (writes.Exists(write => write.Key == call.Key))
                            _queue.Enqueue(call);
                        else
                            failed.Add((call, found));
                        if (writes.Exists(write => write.Key == call.Key))
                            break;
                        continue;
                    }

                    writes.Add(new SimulatedWrite(call.Key, call.WriteId));
                    calls.Add(call);
                }

                foreach (var (call, found) in failed)
                    _waiting.Add((Journal.Last.Etag, call, found));
                if (writes.Count > 0)
                {
                    var header = AppendOwn([.. writes]);
                    foreach (var call in calls)
                        _waiting.Add((header.Etag, call, null));
                    Step(_atOnce.Dequeue());
                }

                AnswerWaiting();
            }
        }

        private void AnswerWaiting()
        {
            while (_waiting.Count > 0 && _waiting[0].Etag <= Published)
            {
                var (etag, call, found) = _waiting[0];
                _waiting.RemoveAt(0);
                if (found is null)
                    call.Answer(new SimulatedAnswer(SimulatedOutcome.Applied, etag, call.WriteId));
                else
                    Read(call);
            }
        }

        private void AnswerFollowerReads()
        {
            foreach (var (_, call) in _awaitingState.Where(read => read.Committed <= Published))
            {
                Run.FollowerReadsAnswered++;
                AnswerRead(call);
            }

            _awaitingState.RemoveAll(read => read.Committed <= Published);
        }

        // A failed condition that is published is a read like any other: of the published state, under the lease or a round.
        private void Read(SimulatedCall call)
        {
            if (!call.Quorum && Now < Core.LeaseEndUs)
            {
                AnswerRead(call);
                return;
            }

            var id = ++_readIdLast;
            _reads[id] = call;
            Step(new Event.ReadArrived(id));
        }

        private void AnswerRead(SimulatedCall call)
        {
            var found = _state.GetValueOrDefault(call.Key).WriteId;
            // A condition that failed before may hold by now: then it is only known not to have been applied.
            var outcome = call.Expected == found && call.WriteId != 0 ? SimulatedOutcome.NotLeader : SimulatedOutcome.Read;
            call.Answer(new SimulatedAnswer(outcome, Published, found));
        }

        private void StopLeading()
        {
            _leading = 0;
            foreach (var (_, call, found) in _waiting)
                call.Answer(new SimulatedAnswer(found is null ? SimulatedOutcome.Unknown : SimulatedOutcome.NotLeader, Etag.None, 0));
            _waiting.Clear();
            while (_queue.TryDequeue(out var call))
                call.Answer(new SimulatedAnswer(SimulatedOutcome.NotLeader, Etag.None, 0));
        }

        private void Apply(SimulatedRecord record)
        {
            Run.Checker.OnCommitted(_replica.Id, record);
            Apply(_state, record);
            Published = record.Header.Etag;
        }

        private static void Apply(Dictionary<int, (long WriteId, Etag Etag)> state, SimulatedRecord record)
        {
            foreach (var write in record.Writes)
                state[write.Key] = (write.WriteId, record.Header.Etag);
        }

        private byte[] SnapshotBytes()
        {
            using var stream = new MemoryStream();
            using var writer = new BinaryWriter(stream);
            foreach (var (key, (writeId, etag)) in _state.OrderBy(pair => pair.Key))
            {
                writer.Write(key);
                writer.Write(writeId);
                writer.Write(etag.Epoch);
                writer.Write(etag.Change);
            }

            // Never empty: a transfer has at least one chunk.
            writer.Write(-1);
            return stream.ToArray();
        }

        private void StoreChunk(SnapshotChunk chunk)
        {
            var offset = (int)chunk.Offset;
            Violation.Unless(offset == 0 || offset == _incoming.Length, "a snapshot is stored with a gap");
            _incoming = offset == 0 ? chunk.Data.ToByteArray() : [.. _incoming, .. chunk.Data.Span];
            var covers = new RecordName(new Etag(chunk.Covers.Etag.Epoch, chunk.Covers.Etag.Change), chunk.Covers.Checksum);
            var stored = _incoming.Length;
            After(Run.Random.NextInt64(500), () => Step(new Event.SnapshotStored(covers, stored)));
        }

        private void Install(Effect.InstallSnapshot install)
        {
            _state = [];
            using var reader = new BinaryReader(new MemoryStream(_incoming));
            for (var key = reader.ReadInt32(); key >= 0; key = reader.ReadInt32())
                _state[key] = (reader.ReadInt64(), new Etag(reader.ReadUInt64(), reader.ReadUInt64()));
            _replica._checkpoint = new(_state);
            _replica._control = install.Control;
            Journal.Replace(install.Covers);
            Published = install.Covers.Etag;
            Run.SnapshotsInstalled++;
            Run.Trace($"node {_replica.Node} has installed a snapshot at {install.Covers}");
            Step(new Event.SnapshotInstalled(install.Covers));
        }

        private long SyncUs() => Run.Random.NextInt64(_replica.SyncUs / 10, _replica.SyncUs + 1);

        // Happens in this process or not at all.
        private void After(long delayUs, Action action) => Run.After(delayUs, () => Later(action));

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
}
