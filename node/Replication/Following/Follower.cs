using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Following;

/// <summary>
/// A replica under its promised leader: matches its journal with the leader's, appends, cuts, acknowledges what is durable and matched, follows
/// the committed etag, and takes a snapshot. Everything here is about one epoch and starts over when the promise rises, but for a snapshot of which all
/// bytes are here.
/// </summary>
/// <remarks>
/// What a snapshot covers is committed: checkpoints are written of nothing else. So the leaders of all later epochs have it, and whatever replica has a committed record behind
/// it has the record that it covers as well. Installing it where that is not in the journal therefore takes away nothing that is committed, whoever leads by then. Only
/// what is needed behind it is not known: the present leader's journal may not reach back to it, and then another snapshot follows.
/// Bytes that are still to come are another matter: the next leader's checkpoint has its pages elsewhere, so one that is received in part is dropped with its epoch.
/// What an election can cost is one transfer, and no verification.
/// </remarks>
internal sealed class Follower(ReplicaContext context, TailCut cut)
{
    /// <summary>What is done with a snapshot beside the live state, before it is switched in.</summary>
    private enum SnapshotPhase
    {
        None,
        Receiving,
        Verifying,
        Verified,
    }

    // Frames that came before the promise was synced or while a cut was under way. The leader would send them again; keeping the first few saves
    // it a timeout after each election.
    private const int ParkedMax = 16;

    // A leader that says more is not believed; nobody's disk would be slow any more.
    private const ulong PaceUsMax = 10_000_000;

    private readonly List<Frame> _parked = [];
    private readonly Freshness _freshness = new();
    private ulong _leader;
    private bool _matchedAny;
    private Etag _matched;
    private Etag _leaderCommitted;
    private Etag _acknowledgedSent;
    private long _leaderPaceUs;
    private SnapshotPhase _snapshot;
    private LogPosition _snapshotCovers;
    private long _snapshotSubmitted;
    private long _snapshotStored;
    private long _snapshotTotal;
    private long _snapshotVerified;
    private HardState? _installing;

    /// <summary>The snapshot comes from an earlier epoch than the promised one.</summary>
    private bool _snapshotIsKept;

    /// <summary>The snapshot that the present leader would send meanwhile: it is told that nothing of it is stored, and how far the kept one is, so that it waits.</summary>
    private LogPosition _offered;

    /// <summary>The replica that leads the promised epoch and has spoken; 0: none yet.</summary>
    public ulong Leader => _leader;

    /// <summary>When this replica last was at its leader's committed state, by the boot clock; <see cref="long.MinValue"/>: not since its start.</summary>
    public long CurrentUs => _freshness.CurrentUs;

    /// <summary>A snapshot is being switched in: the journal is not to be touched or asked. Not while it is received and verified, which takes as long as it takes.</summary>
    public bool Installing => _installing is not null;

    /// <summary>What may be acknowledged in this epoch: durable here, and the same as the leader's.</summary>
    private Etag Acknowledgeable
    {
        get
        {
            if (!_matchedAny || Installing)
                return Etag.None;
            return Etag.Min(_matched, context.Journal.Durable.Etag);
        }
    }

    private bool Blocked => cut.Busy || Installing || !context.Control.PromiseSynced;

    /// <summary>The promise rose: nothing of the old leader counts any more.</summary>
    public void StartEpoch()
    {
        _leader = 0;
        _matchedAny = false;
        _matched = _leaderCommitted = _acknowledgedSent = Etag.None;
        _parked.Clear();
        if (_snapshot is SnapshotPhase.Verifying or SnapshotPhase.Verified)
            (_snapshotIsKept, _offered) = (true, default);
        else
            DropSnapshot();
        context.OwnDigest.Forget();
        context.Pace.Forget();
        _leaderPaceUs = 0;
        cut.Abandon();
    }

    /// <summary>A frame of the promised leader in the promised epoch.</summary>
    public void OnLeaderFrame(Frame frame)
    {
        HearLeader(frame);
        // Behind what is parked already, so that the order stays.
        if (Blocked || _parked.Count > 0)
        {
            if (_parked.Count < ParkedMax)
                _parked.Add(frame);
            return;
        }

        Handle(frame);
    }

    /// <summary>Any frame of the promised leader tells who leads.</summary>
    public void HearLeader(Frame frame)
    {
        if (_leader == frame.Sender)
            return;
        _leader = frame.Sender;
        context.Emit(new Effect.LeaderKnown(frame.Epoch, frame.Sender, context.View.NodeOf(frame.Sender)));
    }

    /// <summary>Frames are left over that could be handled: step again at once.</summary>
    public bool HasWork => _parked.Count > 0 && !Blocked;

    /// <summary>
    /// Handles what waited for a promise, a cut or an installation that is done now; at most one append a step, because the next one must find the
    /// journal that this one leaves.
    /// </summary>
    public void ReplayParked()
    {
        while (HasWork && !context.Effects.Any(effect => effect is Effect.AppendBodies))
        {
            var frame = _parked[0];
            _parked.RemoveAt(0);
            Handle(frame);
        }
    }

    /// <summary>The cut is done: the record kept is common with the leader that asked for it, if that leader still leads.</summary>
    public void OnCutDone(LogPosition kept)
    {
        if (_leader == 0)
            return;
        Matched(kept.Etag);
        SendMatch(context.FrameTo(_leader, context.Promised), found: true, kept);
    }

    /// <summary>Acknowledges if there is more to acknowledge than was said, and keeps the control file's marks up to date.</summary>
    public void Acknowledge()
    {
        if (_leader == 0 || Blocked)
            return;
        context.Pace.Follow(context.Journal.Durable.Etag, _leaderPaceUs, context.NowUs);
        var etag = Acknowledgeable;
        context.NoteProgress(context.Recovering ? Etag.None : etag);
        if (etag <= _acknowledgedSent)
            return;
        _acknowledgedSent = etag;
        var frame = context.FrameTo(_leader, context.Promised);
        frame.Ack = new Ack { Durable = etag.ToWire(), Recovering = context.Recovering };
        context.Send(frame);
    }

    /// <summary>Answers a heartbeat; <paramref name="granted"/> tells whether the grant was given.</summary>
    public void AnswerHeartbeat(Frame heartbeat, bool granted)
    {
        _leaderPaceUs = (long)Math.Min(heartbeat.Heartbeat.PaceUs, PaceUsMax);
        var frame = context.FrameTo(heartbeat.Sender, heartbeat.Epoch);
        frame.HeartbeatAck = new HeartbeatAck
        {
            Round = heartbeat.Heartbeat.Round,
            Granted = granted,
            Durable = Acknowledgeable.ToWire(),
            Recovering = context.Recovering,
            DiskImpaired = context.Impaired,
            Awaited = heartbeat.Heartbeat.Awaited,
        };
        context.Send(frame);
    }

    /// <summary>A heartbeat may be answered: the promise is synced.</summary>
    public bool MayAnswer => context.Control.PromiseSynced && !Installing;

    /// <summary>The committed etag of the leader, from a heartbeat or an append.</summary>
    public void LearnCommitted(Frame frame, Etag committed)
    {
        _leaderCommitted = Etag.Max(_leaderCommitted, committed);
        // Before the first match in this epoch nothing moves: the own tail may not be the leader's.
        if (!Blocked)
            context.CommitTo(_matchedAny ? Etag.Min(_leaderCommitted, _matched) : context.Options.Rules.CommittedUnmatched(context.Journal, _leaderCommitted));
        if (committed.Epoch == frame.Epoch)
            _freshness.Heard(committed, context.Committed, context.NowUs);
        EndRecovery(frame, committed);
    }

    /// <summary>Bytes of a snapshot are stored beside the live state.</summary>
    public void OnSnapshotStored(LogPosition covers, long bytesStored)
    {
        if (_snapshot != SnapshotPhase.Receiving || covers != _snapshotCovers || bytesStored > _snapshotSubmitted)
            return;
        _snapshotStored = Math.Max(_snapshotStored, bytesStored);
        if (_snapshotStored == _snapshotTotal)
        {
            _snapshot = SnapshotPhase.Verifying;
            context.Emit(new Effect.VerifySnapshot(covers));
        }

        SendSnapshotAck();
    }

    /// <summary>So much of the snapshot is verified, or all of it and synced.</summary>
    public void OnSnapshotVerified(LogPosition covers, long bytesVerified, bool isWhole)
    {
        if (_snapshot != SnapshotPhase.Verifying || covers != _snapshotCovers)
            return;
        _snapshotVerified = bytesVerified;
        if (isWhole)
            _snapshot = SnapshotPhase.Verified;
        SendSnapshotAck();
    }

    /// <summary>The snapshot comes to nothing, and nothing of it is kept: this replica goes on as before, and its leader sends another one later.</summary>
    public void OnSnapshotFailed(LogPosition covers, SnapshotFault fault, string reason)
    {
        if (_snapshot == SnapshotPhase.None || covers != _snapshotCovers)
            return;
        context.Log($"the snapshot at {covers} was not installed: {reason}");
        // The present leader has nothing to do with what an earlier one sent: its own begins.
        if (_snapshotIsKept)
            TellOfKept(installed: false);
        else
            SendSnapshotAck(fault);
        ForgetSnapshot();
    }

    /// <summary>
    /// Switches a verified snapshot in as soon as the control file is at rest, so that the newest promise goes with it; one that was overtaken while it was
    /// received and verified is dropped.
    /// </summary>
    public void PumpInstall()
    {
        // What is about to be appended is seen with the next step.
        if (_snapshot == SnapshotPhase.None || context.Effects.Any(effect => effect is Effect.AppendBodies))
            return;
        if (IsOvertaken(_snapshotCovers))
        {
            context.Log($"the snapshot at {_snapshotCovers} is not needed any more");
            if (_snapshotIsKept)
                TellOfKept(installed: false);
            else
                EndUnneeded(_snapshotCovers);
            DropSnapshot();
            return;
        }

        // One that is kept waits for a leader: until then this replica may itself be about to lead, with the journal that it has.
        if (_snapshot != SnapshotPhase.Verified || !context.Control.Idle || cut.Busy || (_snapshotIsKept && _leader == 0))
            return;
        if (!context.Recovering && context.Control.Wanted.Acknowledged > _snapshotCovers.Etag)
            context.Control.Note(context.Control.Wanted with { Acknowledged = _snapshotCovers.Etag });
        _installing = context.Control.Freeze();
        context.Emit(new Effect.InstallSnapshot(_snapshotCovers, _installing));
        _snapshot = SnapshotPhase.None;
    }

    /// <summary>The snapshot is the live state now.</summary>
    public void OnSnapshotInstalled(LogPosition covers)
    {
        Invariant.Check(_installing is not null, $"A snapshot at {covers} is installed that was not asked for.");
        context.Control.Thaw(_installing);
        _installing = null;
        context.CommittedBySnapshot(covers.Etag);
        if (_leader == 0 || covers != _snapshotCovers)
            return;
        if (_snapshotIsKept)
        {
            // The leader asks from where this replica goes on, and its answer is what matches.
            TellOfKept(installed: true);
        }
        else
        {
            Matched(covers.Etag);
            SendSnapshotAck(covers, installed: true);
        }

        ForgetSnapshot();
    }

    private void Handle(Frame frame)
    {
        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Probe:
                OnProbe(frame, frame.Probe);
                break;
            case Frame.PayloadOneofCase.Append:
                OnAppend(frame, frame.Append);
                break;
            case Frame.PayloadOneofCase.SnapshotChunk:
                OnSnapshotChunk(frame.SnapshotChunk);
                break;
        }
    }

    // Nothing waits for the mark to be synced, because nothing is done meanwhile that relies on it: a crash before that leaves a replica as if the probe had
    // not come yet, and the leader, which remembers through any number of its restarts, tells the next process before it sends it anything. If the leader is
    // gone by then, nobody knows of the loss, as before the probe: the control file alone, at most a second old, has to show it.
    private void OnProbe(Frame frame, Probe probe)
    {
        var remembered = probe.Remembered.FromWire();
        if (frame.ReceiverIncarnation == context.Incarnation && context.Journal.Last.Etag < remembered && !context.Recovering)
        {
            context.Recovering = true;
            context.Emit(new Effect.Alarm($"the journal ends at {context.Journal.Last.Name}, before {remembered}, which this replica acknowledged: recovering"));
            context.Control.Require(context.Control.Wanted with { Acknowledged = Etag.Max(context.Control.Wanted.Acknowledged, remembered) });
        }

        Answer(frame, probe.Record.FromWire());
    }

    // Says whether the journal has a record of the leader's, and otherwise which one may be common.
    private void Answer(Frame frame, LogPosition asked)
    {
        var answer = context.FrameTo(frame.Sender, frame.Epoch);
        if (TailMatch.Has(context.Journal, asked))
        {
            Matched(asked.Etag);
            SendMatch(answer, found: true, asked);
            return;
        }

        // A journal that no longer reaches back that far begins at a checkpoint, which is committed, hence common.
        if (context.Journal.TryFindAtOrBefore(asked.Etag, out var own) || context.Journal.TryFindAtOrBefore(context.Committed, out own))
            SendMatch(answer, found: false, own.Name);
    }

    private void OnAppend(Frame frame, Append append)
    {
        var match = TailMatch.Of(context.Journal, append.Previous.FromWire(), append.Bodies, frame.Epoch);
        switch (match.Fit)
        {
            case TailFit.Missing:
                Answer(frame, append.Previous.FromWire());
                return;
            case TailFit.Damaged:
                context.Emit(new Effect.Alarm($"an append of replica {frame.Sender:x} in epoch {frame.Epoch} is damaged; dropped"));
                return;
            case TailFit.Conflict:
                BeginCut(frame, match.Common);
                return;
        }

        Matched(match.Common.Etag);
        if (match.FirstNew < append.Bodies.Count)
        {
            context.Emit(new Effect.AppendBodies(append.Bodies, match.FirstNew));
            Matched(match.End.Etag);
            // One that is being caught up writes much at once; that tells nothing of its disk.
            if (append.Committed.FromWire() <= match.End.Etag)
                context.Pace.Appended(match.End.Etag, context.NowUs);
        }

        LearnCommitted(frame, append.Committed.FromWire());
    }

    private void BeginCut(Frame frame, LogPosition common)
    {
        common = context.Options.Rules.CutTo(context.Journal, common, context.Committed);
        context.Pace.Forget();
        Matched(common.Etag);
        if (cut.TryBegin(common, frame.Epoch))
            _parked.Insert(0, frame);
    }

    private void Matched(Etag etag)
    {
        _matched = _matchedAny ? Etag.Max(_matched, etag) : etag;
        _matchedAny = true;
    }

    private void SendMatch(Frame frame, bool found, LogPosition record)
    {
        frame.Match = new Match { Found = found, Record = record.ToWire(), Durable = Acknowledgeable.ToWire(), Recovering = context.Recovering };
        context.Send(frame);
    }

    // Recovered: the journal, durable and matched, reaches the committed etag of a leader that serves its own epoch and knows this process.
    private void EndRecovery(Frame frame, Etag committed)
    {
        if (!context.Recovering || Blocked || committed.Epoch != frame.Epoch || frame.ReceiverIncarnation != context.Incarnation)
            return;
        var recovered = Acknowledgeable;
        if (recovered < committed)
            return;
        context.Recovering = false;
        context.Log($"recovered to {recovered}, the leader's committed etag is {committed}");
        context.Control.Require(context.Control.Wanted with { Acknowledged = recovered });
        // Said before as "recovering"; now it counts.
        _acknowledgedSent = Etag.None;
    }

    private void OnSnapshotChunk(SnapshotChunk chunk)
    {
        var covers = chunk.Covers.FromWire();
        if (IsOvertaken(covers))
        {
            // Installed before, or overtaken by the journal.
            EndUnneeded(covers);
            return;
        }

        if (_snapshotIsKept)
        {
            _offered = covers;
            SendSnapshotAck();
            return;
        }

        if (_snapshot == SnapshotPhase.None || covers != _snapshotCovers)
        {
            // Only its first chunk begins one, and a leader's checkpoints only get newer: what comes late ends none.
            if (chunk.Offset != 0 || chunk.Data.IsEmpty || (_snapshot != SnapshotPhase.None && covers.Etag < _snapshotCovers.Etag))
            {
                SendSnapshotAck(covers, installed: false);
                return;
            }

            ForgetSnapshot();
            _snapshot = SnapshotPhase.Receiving;
            _snapshotCovers = covers;
            _snapshotTotal = (long)chunk.BytesTotal;
        }

        var end = (long)chunk.Offset + chunk.Data.Length;
        // Two windows: no leader has more under way, and memory is not for whoever says otherwise.
        var isTooMuch = _snapshotSubmitted - _snapshotStored >= 2 * context.Options.SnapshotWindowBytes;
        if ((long)chunk.Offset != _snapshotSubmitted || end > _snapshotTotal || chunk.Data.IsEmpty || isTooMuch)
        {
            SendSnapshotAck();
            return;
        }

        _snapshotSubmitted = end;
        context.Emit(new Effect.StoreSnapshotChunk(chunk));
    }

    // This replica has what it covers; installing it would lose what came after.
    private bool IsOvertaken(LogPosition covers) => context.Options.Rules.IsOvertaken(context.Journal, covers, context.Committed);

    private void DropSnapshot()
    {
        if (_snapshot != SnapshotPhase.None)
            context.Emit(Effect.DropSnapshot.Instance);
        ForgetSnapshot();
    }

    private void ForgetSnapshot()
    {
        _snapshot = SnapshotPhase.None;
        _snapshotIsKept = false;
        _snapshotCovers = _offered = default;
        _snapshotSubmitted = _snapshotStored = _snapshotTotal = _snapshotVerified = 0;
    }

    private void SendSnapshotAck(SnapshotFault fault = SnapshotFault.Unspecified)
    {
        var stored = _snapshotIsKept ? 0 : _snapshotStored;
        if (!_snapshotIsKept || _offered != default)
        {
            SendSnapshotAck(new SnapshotAck
            {
                Covers = (_snapshotIsKept ? _offered : _snapshotCovers).ToWire(), BytesStored = (ulong)stored, BytesVerified = (ulong)_snapshotVerified, Fault = fault,
            });
        }
    }

    // Installed: it asks what this replica has by now. Otherwise it begins to send.
    private void TellOfKept(bool installed)
    {
        if (_offered != default)
            SendSnapshotAck(_offered, installed);
    }

    private void EndUnneeded(LogPosition covers)
    {
        if (TailMatch.Has(context.Journal, covers))
            Matched(covers.Etag);
        SendSnapshotAck(covers, installed: true);
    }

    private void SendSnapshotAck(LogPosition covers, bool installed) => SendSnapshotAck(new SnapshotAck { Covers = covers.ToWire(), Installed = installed });

    private void SendSnapshotAck(SnapshotAck ack)
    {
        if (_leader == 0)
            return;
        var frame = context.FrameTo(_leader, context.Promised);
        frame.SnapshotAck = ack;
        context.Send(frame);
    }
}
