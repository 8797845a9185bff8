using Google.Protobuf;
using KvCluster.Replication;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Simulation.Protocol;

/// <summary>What a client asks of a replica. The answer comes once, or never if the replica dies.</summary>
/// <param name="Keys">Written together, or read at one snapshot.</param>
/// <param name="WriteId">The value to put; 0: a read.</param>
/// <param name="Expected">A write's condition: the value of the first key.</param>
/// <param name="Quorum">A read that asks for a round, whatever the lease.</param>
/// <param name="Answer">Told once.</param>
internal sealed record SimulatedCall(int[] Keys, long WriteId, long? Expected, bool Quorum, Action<SimulatedAnswer> Answer);

/// <summary>How a call ended.</summary>
internal enum SimulatedOutcome
{
    Applied,
    Read,
    NotLeader,
    Unknown,
}

/// <summary>An answer. A failed condition is a read: <paramref name="Values"/> is what was found under the call's keys at <paramref name="Etag"/>.</summary>
internal readonly record struct SimulatedAnswer(SimulatedOutcome Outcome, Etag Etag, long[] Values)
{
    public static SimulatedAnswer Of(SimulatedOutcome outcome) => new(outcome, Etag.None, []);
}

/// <summary>
/// One replica on one node: the real <see cref="ReplicaCore"/>, driven as the node drives it, over a journal and a control file in memory. What a crash
/// leaves lives here; what it loses is a <see cref="Process"/>.
/// </summary>
internal sealed class SimulatedReplica
{
    private readonly SimulationRun _run;
    private readonly MemoryJournal _journal;
    private HardState _control;
    private HardState? _controlWriting;
    private Dictionary<int, (long WriteId, Etag Etag)> _checkpoint = [];
    private Process? _process;
    private int _paused;
    private ulong _starts;
    private List<Action> _whilePaused = [];

    public SimulatedReplica(SimulationRun run, int node, ulong id)
    {
        _run = run;
        Node = node;
        Id = id;
        _journal = new MemoryJournal(run.Random);
        _control = new HardState { ReplicaId = id };
        var drift = run.Conditions.DriftPermille;
        // As far apart as is declared in every second run.
        DriftPermille = run.Random.Next(2) == 0 ? run.Random.Next(-drift, drift + 1) : run.Random.Next(2) == 0 ? drift : -drift;
        SyncUs = run.Conditions.SyncUs;
    }

    public int Node { get; }

    public ulong Id { get; }

    public int DriftPermille { get; }

    public long SyncUs { get; set; }

    /// <summary>How long it verifies a snapshot; 0: as long as it happens to.</summary>
    public long VerifiesForUs { get; set; }

    public bool Up => _process is not null;

    /// <summary>Checkpoints that it keeps for others.</summary>
    public int Pins => _process?.Pins ?? 0;

    public bool Leads => _process is { Core.Role: ReplicaRole.Leader };

    public bool Stands => _process is { Core.Role: ReplicaRole.Candidate };

    /// <summary>Its journal lacks nothing that it once acknowledged.</summary>
    public bool IsWhole => _process is not null && _process.Core.Role != ReplicaRole.Recovering;

    /// <summary>Its journal was damaged at some time.</summary>
    public bool LostTail { get; private set; }

    /// <summary>The end of what is synced of its journal.</summary>
    public Etag Durable => _journal.Durable.Etag;

    public Etag Published => _process?.Published ?? Etag.None;

    public string State => _process is null ? "down" : $"{_process.Core.Role} epoch {_process.Core.Epoch} last {_journal.Last.Name} committed {_process.Core.Committed}";

    public bool SameStateAs(SimulatedReplica other) => _process!.SameStateAs(other._process!);

    public void Start()
    {
        // A node does not start a replica that the record no longer names.
        if (_run.Coordinator.Record.Replicas.All(replica => replica.Replica != Id))
            return;
        _run.Trace($"node {Node} starts, journal ends at {_journal.Last.Name}, control {_control.PromisedEpoch}");
        RememberLoss();
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

    /// <summary>While it is down, the end of its journal goes: so much that the control file shows it.</summary>
    public void LoseTail()
    {
        var shown = _control.Acknowledged > _control.Committed ? _control.Acknowledged : _control.Committed;
        if (!_journal.TryLoseTail(shown))
            return;
        LostTail = true;
        _run.Trace($"node {Node} has lost its journal behind {_journal.Last.Name}");
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

    public void Receive(Frame frame) => InProcess(process => process.Receive(frame));

    public void NodeSilent(uint node) => InProcess(process => process.Step(new Event.NodeSilent(node)));

    public void Watched(ShardRecord record, long revision) => InProcess(process => process.Step(new Event.ShardRecordRead(0, record, revision)));

    public void Call(SimulatedCall call) => InProcess(process => process.Call(call));

    /// <summary>An operator asks it to hand its leadership over.</summary>
    public void Transfer(ulong to) => InProcess(process => process.Step(new Event.TransferAsked(0, to)));

    /// <summary>An operator asks it, as the leader, to change the shard's replicas.</summary>
    public void Change(ReplicaChange change) => InProcess(process => process.Step(new Event.ReplicasAsked(1, change)));

    /// <summary>Writes a checkpoint and drops the journal that it covers.</summary>
    public void Checkpoint() => InProcess(process => process.Checkpoint());

    // As the store does before it appends anything: however far it is recovered until it dies again, the next process finds that it lost something.
    private void RememberLoss()
    {
        var last = _journal.Last.Etag;
        if (last >= (_control.Acknowledged > _control.Committed ? _control.Acknowledged : _control.Committed))
            return;
        var mark = new Etag(Math.Max(_control.PromisedEpoch, last.Epoch), ulong.MaxValue);
        _control = _control with { Acknowledged = mark > _control.Acknowledged ? mark : _control.Acknowledged };
    }

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
        private readonly FaultyDriver _driver;
        private readonly ulong _incarnation;
        private readonly Queue<Event> _events = new();
        private readonly Queue<Event> _atOnce = new();
        private readonly List<(Etag Etag, SimulatedCall Call, bool Failed)> _waiting = [];
        private readonly Queue<SimulatedCall> _queue = new();
        private readonly Dictionary<long, SimulatedCall> _reads = [];
        private readonly Dictionary<long, SimulatedCall> _followerReads = [];
        private readonly List<(Etag Committed, SimulatedCall Call)> _awaitingState = [];
        private readonly Dictionary<ulong, (LogPosition Covers, byte[] Bytes)> _sources = [];
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
        private DigestsCompared? _compared;
        private bool _diskIsSlow;

        public Process(SimulatedReplica replica)
        {
            _replica = replica;
            _driver = new FaultyDriver(Run, replica, Journal);
            _incarnation = (++replica._starts << 32) | (uint)Run.Random.Next();
            _state = new(replica._checkpoint);
            Published = replica._journal.Base.Etag;
            foreach (var record in replica._journal.Behind(Published).TakeWhile(record => record.Header.Etag <= replica._control.Committed))
                Apply(record);
            var (shardRecord, revision) = (Run.Coordinator.Record, Run.Coordinator.Revision);
            var startup = new ReplicaStartup(0, _incarnation, _driver.Recovered(replica._control), Published, shardRecord, revision, (ulong)Run.Random.NextInt64(), Now);
            Core = new ReplicaCore(startup, replica._journal, Run.Options);
        }

        public ReplicaCore Core { get; }

        public int Pins => _sources.Count;

        public Etag Published { get; private set; }

        private SimulationRun Run => _replica._run;

        private MemoryJournal Journal => _replica._journal;

        private long Now => Run.NowUs + (Run.NowUs * _replica.DriftPermille / 1000);

        public void Begin() => Step(Event.Tick.Instance);

        public void End() => _ended = true;

        public bool SameStateAs(Process other) => Published == other.Published && _state.Count == other._state.Count && _state.All(pair => other._state[pair.Key] == pair.Value);

        public void Receive(Frame frame)
        {
            foreach (var told in _driver.Arriving(frame, Core, _replica._control, Now))
                Step(told);
        }

        public void Call(SimulatedCall call)
        {
            if (!_serving && call.WriteId == 0 && _driver.ReadsOn(Now))
            {
                AnswerRead(call);
            }
            else if (!_serving && call.WriteId == 0 && Run.Chance(700))
            {
                _followerReads[++_followerReadIdLast] = call;
                Step(new Event.FollowerReadArrived(_followerReadIdLast));
            }
            else if (!_serving)
            {
                call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
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
                foreach (var effect in _driver.Executed([.. Core.Effects], Core, _replica._control))
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
                Run.DigestsCompared++;
            }

            TellDisk();
            AppendBatches();
            ArrangeTick();
        }

        // As the node's disk does for a replica that is alone on it.
        private void TellDisk()
        {
            if (Core.Pace.IsSlow == _diskIsSlow)
                return;
            _diskIsSlow = Core.Pace.IsSlow;
            Run.Trace($"node {_replica.Node}: disk is slow {_diskIsSlow}");
            Step(new Event.DiskHealth(_diskIsSlow));
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
                    _driver.Leaving(send.Frame);
                    Run.Network.Send(_replica.Node, (int)send.Node, send.Frame);
                    if (MomentOf(send.Frame) is { } moment)
                        Run.Reached(_replica, moment);
                    break;
                case Effect.SendBodies send:
                    SendBodies(send);
                    break;
                case Effect.WriteControl write:
                    WriteControl(write.Control, _driver.Written(write.Control, _replica._control, Core));
                    break;
                case Effect.AppendBodies append:
                    foreach (var body in append.Bodies.Skip(append.First))
                    {
                        Violation.Unless(SimulatedRecord.TryParse(body.Span, out var record), Rule.Contract, "a damaged body is appended");
                        Append(record);
                    }

                    break;
                case Effect.Cut cut:
                    Violation.Unless(cut.LastKept.Etag >= Published, Rule.Contract, $"node {_replica.Node} cuts to {cut.LastKept}, below what it has applied, {Published}");
                    Violation.Unless(_replica._control.Acknowledged <= cut.LastKept.Etag || Core.Role == ReplicaRole.Recovering, Rule.Contract, "a cut below the acknowledged etag of the control file");
                    Journal.Cut(cut.LastKept);
                    After(SyncUs(), () =>
                    {
                        Journal.FinishCut();
                        Step(Event.CutDone.Instance);
                    });
                    Run.Reached(_replica, Moment.CutBegun);
                    break;
                case Effect.Commit commit:
                    foreach (var record in Journal.Behind(Published).TakeWhile(record => record.Header.Etag <= commit.Committed).ToList())
                        Apply(record);
                    Violation.Unless(Published == commit.Committed, Rule.Contract, $"node {_replica.Node} is to commit {commit.Committed}, its journal gives {Published}");
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
                        call!.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
                    }

                    break;
                case Effect.ReadRecord read:
                    Run.Coordinator.Read(_replica.Node, (record, revision) => Later(() => Step(new Event.ShardRecordRead(read.ReadId, record, revision))));
                    break;
                case Effect.CompareAndSet set:
                    Run.Coordinator.CompareAndSet(_replica.Node, set.Record, set.Revision, (outcome, revision) =>
                        Later(() => Step(new Event.CompareAndSetDone(set.SetId, _driver.Heard(outcome), revision))));
                    Run.Reached(_replica, Moment.TransactionSent);
                    break;
                case Effect.StartLeading start:
                    _leading = start.Epoch;
                    _unpublished = new(_state);
                    foreach (var record in Journal.Behind(Published))
                        Apply(_unpublished, record);
                    AppendOwn([]);
                    Run.Reached(_replica, Moment.LeadingStarted);
                    break;
                case Effect.Serving serving:
                    _serving = serving.On;
                    if (!serving.On)
                        _driver.ServingEnded(Core);
                    Run.Trace($"node {_replica.Node} serving {serving.On} in epoch {_leading}");
                    if (serving.On)
                    {
                        Run.Checker.OnServing(_leading, _replica.Id, _incarnation);
                        Run.Reached(_replica, Moment.ServingStarted);
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
                        call!.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
                    }

                    break;
                case Effect.TakeDigest take:
                    Violation.Unless(Published == take.Etag, Rule.Contract, $"node {_replica.Node} is to take a digest of {take.Etag} at {Published}");
                    var digest = Digest();
                    After(Run.Random.NextInt64(4 * SyncUs()), () => Step(new Event.DigestTaken(take.TakeId, digest)));
                    break;
                case Effect.Quarantine quarantine:
                    throw new Violation(Rule.GoesOn, $"node {_replica.Node} is quarantined: {quarantine.Reason}");
                case Effect.OpenSnapshot open:
                    var covers = Journal.TryFind(Published, out var published) ? published.Name : Journal.Base;
                    var bytes = SnapshotBytes();
                    _sources[open.Replica] = (covers, bytes);
                    Run.Trace($"node {_replica.Node} opens a snapshot at {covers} for replica {open.Replica}");
                    After(SyncUs(), () => Step(new Event.SnapshotOpened(open.Replica, covers, bytes.Length)));
                    break;
                case Effect.SendSnapshotChunk send:
                    var chunk = send.Frame.SnapshotChunk;
                    if (!_sources.TryGetValue(send.Frame.Receiver, out var source) || source.Covers != chunk.Covers.FromWire())
                        break;
                    chunk.Data = ByteString.CopyFrom(source.Bytes.AsSpan((int)chunk.Offset, send.Bytes));
                    After(Run.Random.NextInt64(100), () => Run.Network.Send(_replica.Node, (int)send.Node, send.Frame));
                    break;
                case Effect.CloseSnapshot close:
                    _sources.Remove(close.Replica);
                    break;
                case Effect.StoreSnapshotChunk store:
                    StoreChunk(store.Chunk);
                    break;
                case Effect.VerifySnapshot verify:
                    VerifySnapshot(verify.Covers);
                    break;
                case Effect.DropSnapshot:
                    _incoming = [];
                    break;
                case Effect.InstallSnapshot install:
                    After(SyncUs() * 2, () => Install(install));
                    Run.Reached(_replica, Moment.Installing);
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
                    throw new Violation(Rule.GoesOn, $"node {_replica.Node} halts: {halt.Reason}");
                case Effect.Log log:
                    Run.Trace($"node {_replica.Node}: {log.Text}");
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

        private ByteString Digest() => ByteString.CopyFromUtf8(string.Join(' ', _state.OrderBy(pair => pair.Key).Select(pair => $"{pair.Key}:{pair.Value.WriteId}@{pair.Value.Etag}")));

        private void WriteControl(HardState wanted, HardState control)
        {
            Violation.Unless(
                control.Committed <= Journal.Durable.Etag || control.Committed == _replica._control.Committed,
                Rule.Contract,
                $"node {_replica.Node} writes a committed etag, {control.Committed}, that its journal, durable up to {Journal.Durable.Name}, does not reach");
            var rises = control.PromisedEpoch > _replica._control.PromisedEpoch;
            _replica._controlWriting = control;
            After(SyncUs(), () =>
            {
                _replica._control = control;
                _replica._controlWriting = null;
                Step(new Event.ControlWritten(wanted));
            });
            Run.Reached(_replica, rises ? Moment.PromiseWriting : Moment.ControlWriting);
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
                var failed = new List<SimulatedCall>();
                while (writes.Count < 8 && _queue.TryPeek(out var call))
                {
                    if (call.Expected is { } expected)
                    {
                        // Evaluated on the records before this batch: what this batch changes itself waits for the next one.
                        if (writes.Exists(write => write.Key == call.Keys[0]))
                            break;
                        if (expected != _unpublished.GetValueOrDefault(call.Keys[0]).WriteId)
                        {
                            failed.Add(_queue.Dequeue());
                            continue;
                        }
                    }

                    calls.Add(_queue.Dequeue());
                    writes.AddRange(call.Keys.Select(key => new SimulatedWrite(key, call.WriteId)));
                }

                foreach (var call in failed)
                    _waiting.Add((Journal.Last.Etag, call, true));
                if (writes.Count > 0)
                {
                    var header = AppendOwn([.. writes]);
                    foreach (var call in calls)
                    {
                        if (_driver.AnswersUnpublished)
                            call.Answer(new SimulatedAnswer(SimulatedOutcome.Applied, header.Etag, []));
                        else
                            _waiting.Add((header.Etag, call, false));
                    }

                    Step(_atOnce.Dequeue());
                }

                AnswerWaiting();
            }
        }

        private void AnswerWaiting()
        {
            while (_waiting.Count > 0 && _waiting[0].Etag <= Published)
            {
                var (etag, call, failed) = _waiting[0];
                _waiting.RemoveAt(0);
                if (failed)
                    Read(call);
                else
                    call.Answer(new SimulatedAnswer(SimulatedOutcome.Applied, etag, []));
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
            if ((!call.Quorum && Now < Core.LeaseEndUs) || (_driver.AnswersByEarlierRound && _serving))
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
            var found = call.Keys.Select(key => _state.GetValueOrDefault(key).WriteId).ToArray();
            // A condition that failed before may hold by now: then it is only known not to have been applied.
            var outcome = call.Expected == found[0] && call.WriteId != 0 ? SimulatedOutcome.NotLeader : SimulatedOutcome.Read;
            call.Answer(new SimulatedAnswer(outcome, Published, found));
        }

        private void StopLeading()
        {
            _leading = 0;
            foreach (var (_, call, failed) in _waiting)
                call.Answer(SimulatedAnswer.Of(failed ? SimulatedOutcome.NotLeader : SimulatedOutcome.Unknown));
            _waiting.Clear();
            while (_queue.TryDequeue(out var call))
                call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
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
            Violation.Unless(offset == 0 || offset == _incoming.Length, Rule.Contract, "a snapshot is stored with a gap");
            _incoming = offset == 0 ? chunk.Data.ToByteArray() : [.. _incoming, .. chunk.Data.Span];
            var covers = new LogPosition(new Etag(chunk.Covers.Etag.Epoch, chunk.Covers.Etag.Change), chunk.Covers.Checksum);
            var stored = _incoming.Length;
            After(Run.Random.NextInt64(500), () => Step(new Event.SnapshotStored(covers, stored)));
        }

        // As long as some syncs, and now and then many times that: promises, grants and appends go on meanwhile.
        private void VerifySnapshot(LogPosition covers)
        {
            var incoming = _incoming;
            var us = SyncUs() * (Run.Chance(200) ? 100 : 2);
            Run.Reached(_replica, Moment.Verifying);
            us = _replica.VerifiesForUs > 0 ? _replica.VerifiesForUs : us;
            void Tell(Event happened)
            {
                if (_incoming == incoming)
                    Step(happened);
            }

            After(us / 2, () => Tell(new Event.SnapshotVerified(covers, 1, IsWhole: false)));
            After(us, () => Tell(!Run.Chance(100)
                ? new Event.SnapshotVerified(covers, incoming.Length, IsWhole: true)
                : new Event.SnapshotFailed(covers, (SnapshotFault)Run.Random.Next(1, 4), "it happens")));
        }

        private void Install(Effect.InstallSnapshot install)
        {
            Violation.Unless(install.Covers.Etag > Published, Rule.Contract, $"node {_replica.Node} is to install {install.Covers} over {Published}");
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
