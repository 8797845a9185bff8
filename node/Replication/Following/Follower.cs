using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Following;

/// <summary>
/// A replica under its promised leader. It matches its journal with the leader's, appends, truncates, acknowledges what is durable and matched, follows
/// the committed etag, and takes a snapshot. All of this state belongs to one epoch and is reset when the promise rises, except a snapshot whose bytes have
/// all arrived.
/// </summary>
/// <remarks>
/// What a snapshot covers is committed, because checkpoints contain nothing else. So the leaders of all later epochs have it, and every replica that has a
/// later committed record has the covered record too. Installing the snapshot where that record is missing from the journal therefore loses nothing that is
/// committed, whoever leads by then. The present leader's journal may not reach back to the covered record; then another snapshot follows. A snapshot
/// received in part is dropped when its epoch ends, because the next leader's checkpoint has its pages elsewhere. So an election can cost one transfer of the
/// snapshot, but no verification.
/// </remarks>
internal sealed class Follower(ReplicaContext context, TailCut cut)
{
    /// <summary>The state of a snapshot beside the live state, before it is switched in.</summary>
    private enum SnapshotPhase
    {
        None,
        Receiving,
        Verifying,
        Verified,
    }

    // Frames that came before the promise was synced or during a truncation. The leader would send them again; keeping the first few saves a timeout after each
    // election.
    private const int ParkedMax = 16;

    // A larger value from a leader is capped at this, because no disk would count as slow beside it.
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

    /// <summary>Whether the snapshot comes from an earlier epoch than the promised one.</summary>
    private bool _snapshotIsKept;

    /// <summary>
    /// The snapshot that the present leader would send. The leader is told that nothing of it is stored, and how much of the kept one is verified, so that
    /// it waits.
    /// </summary>
    private LogPosition _offered;

    /// <summary>The leader of the promised epoch, once it was heard; 0 before.</summary>
    public ulong Leader => _leader;

    /// <summary>
    /// When this replica last had everything that its leader had committed, by the boot clock; <see cref="long.MinValue"/> if not since its start.
    /// </summary>
    public long CurrentUs => _freshness.CurrentUs;

    /// <summary>A snapshot is being switched in, so the journal must not be used. Not set while it is received and verified, which may take long.</summary>
    public bool Installing => _installing is not null;

    /// <summary>What may be acknowledged in this epoch: durable here, and matched with the leader.</summary>
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

    /// <summary>The promise rose. What the old leader said no longer counts.</summary>
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
        // Behind the parked frames, to keep the order.
        if (Blocked || _parked.Count > 0)
        {
            if (_parked.Count < ParkedMax)
                _parked.Add(frame);
            return;
        }

        Handle(frame);
    }

    /// <summary>Any frame of the promised leader shows who leads.</summary>
    public void HearLeader(Frame frame)
    {
        if (_leader == frame.Sender)
            return;
        _leader = frame.Sender;
        context.Emit(new Effect.LeaderKnown(frame.Epoch, frame.Sender, context.View.NodeOf(frame.Sender)));
    }

    /// <summary>Parked frames could be handled now; step again at once.</summary>
    public bool HasWork => _parked.Count > 0 && !Blocked;

    /// <summary>
    /// Handles frames that waited for a promise, a truncation or an installation that is done now. At most one append per step, because the next one must see
    /// the journal that this one leaves.
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

    /// <summary>The truncation is done. The record kept is common with the leader for which it was made.</summary>
    public void OnCutDone(LogPosition kept)
    {
        if (_leader == 0)
            return;
        Matched(kept.Etag);
        SendMatch(context.FrameTo(_leader, context.Promised), found: true, kept);
    }

    /// <summary>Sends an acknowledgement if it has risen, and updates the progress in the control file.</summary>
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

    /// <summary>Whether a heartbeat may be answered: the promise is synced.</summary>
    public bool MayAnswer => context.Control.PromiseSynced && !Installing;

    /// <summary>The leader's committed etag, from a heartbeat, an append or the answer to a read index.</summary>
    public void LearnCommitted(Frame frame, Etag committed)
    {
        _leaderCommitted = Etag.Max(_leaderCommitted, committed);
        // Before the first match in this epoch nothing is committed here, because this replica's tail may differ from the leader's.
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

    /// <summary>A part of the snapshot is verified, or all of it is verified and synced.</summary>
    public void OnSnapshotVerified(LogPosition covers, long bytesVerified, bool isWhole)
    {
        if (_snapshot != SnapshotPhase.Verifying || covers != _snapshotCovers)
            return;
        _snapshotVerified = bytesVerified;
        if (isWhole)
            _snapshot = SnapshotPhase.Verified;
        SendSnapshotAck();
    }

    /// <summary>The snapshot failed, and nothing of it is kept. This replica continues as before, and its leader sends another one later.</summary>
    public void OnSnapshotFailed(LogPosition covers, SnapshotFault fault, string reason)
    {
        if (_snapshot == SnapshotPhase.None || covers != _snapshotCovers)
            return;
        context.Log($"the snapshot at {covers} was not installed: {reason}");
        // The present leader did not send the kept snapshot. It begins to send its own.
        if (_snapshotIsKept)
            TellOfKept(installed: false);
        else
            SendSnapshotAck(fault);
        ForgetSnapshot();
    }

    /// <summary>
    /// Switches a verified snapshot in as soon as the control file is not being written, so that the newest promise goes with it. A snapshot that became
    /// outdated while it was received and verified is dropped.
    /// </summary>
    public void PumpInstall()
    {
        // An append of this step is seen in the next one.
        if (_snapshot == SnapshotPhase.None || context.Effects.Any(effect => effect is Effect.AppendBodies))
            return;
        if (IsOvertaken(_snapshotCovers))
        {
            context.Log($"the snapshot at {_snapshotCovers} is no longer needed");
            if (_snapshotIsKept)
                TellOfKept(installed: false);
            else
                EndUnneeded(_snapshotCovers);
            DropSnapshot();
            return;
        }

        // A kept snapshot waits for a leader, because until then this replica may be about to lead with the journal that it has.
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
        Invariant.Check(_installing is not null, $"A snapshot at {covers} was installed that was not requested.");
        context.Control.Thaw(_installing);
        _installing = null;
        context.CommittedBySnapshot(covers.Etag);
        if (_leader == 0 || covers != _snapshotCovers)
            return;
        if (_snapshotIsKept)
        {
            // The leader then probes from where this replica is, and the answer to that establishes the match.
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

    // Nothing waits for the mark to be synced, because nothing relies on it meanwhile. A crash before that leaves the replica as it was before the probe,
    // and the leader, which remembers across any number of the replica's restarts, tells the next process before it sends it anything. If the leader is gone
    // by then, nobody knows of the loss, as before the probe. Then only the control file, at most a second old, can reveal it.
    private void OnProbe(Frame frame, Probe probe)
    {
        var remembered = probe.Remembered.FromWire();
        if (frame.ReceiverIncarnation == context.Incarnation && context.Journal.Last.Etag < remembered && !context.Recovering)
        {
            context.Recovering = true;
            context.Emit(new Effect.Alarm($"the journal ends at {context.Journal.Last.Name}, before {remembered}, which this replica acknowledged; the replica is recovering"));
            context.Control.Require(context.Control.Wanted with { Acknowledged = Etag.Max(context.Control.Wanted.Acknowledged, remembered) });
        }

        Answer(frame, probe.Record.FromWire());
    }

    // Tells whether the journal has this record of the leader, and otherwise which one may be common.
    private void Answer(Frame frame, LogPosition asked)
    {
        var answer = context.FrameTo(frame.Sender, frame.Epoch);
        if (TailMatch.Has(context.Journal, asked))
        {
            Matched(asked.Etag);
            SendMatch(answer, found: true, asked);
            return;
        }

        // A journal that no longer reaches back that far begins at a checkpoint, which is committed and hence common.
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
                context.Emit(new Effect.Alarm($"an append from replica {frame.Sender:x} in epoch {frame.Epoch} is damaged and was dropped"));
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
            // A replica that is being caught up writes much at once, which tells nothing of its disk.
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

    // Recovery ends when the journal, durable and matched, reaches the committed etag of a leader that serves its own epoch and knows this process.
    private void EndRecovery(Frame frame, Etag committed)
    {
        if (!context.Recovering || Blocked || committed.Epoch != frame.Epoch || frame.ReceiverIncarnation != context.Incarnation)
            return;
        var recovered = Acknowledgeable;
        if (recovered < committed)
            return;
        context.Recovering = false;
        context.Log($"recovered to {recovered}; the leader's committed etag is {committed}");
        context.Control.Require(context.Control.Wanted with { Acknowledged = recovered });
        // Sent before as "recovering"; now it counts, so it is sent again.
        _acknowledgedSent = Etag.None;
    }

    private void OnSnapshotChunk(SnapshotChunk chunk)
    {
        var covers = chunk.Covers.FromWire();
        if (IsOvertaken(covers))
        {
            // Installed already, or the journal has what it covers.
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
            // Only its first chunk starts a snapshot. A leader's checkpoints only get newer, so a late chunk never replaces a newer snapshot.
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
        // Two windows. A correct leader never has more outstanding; the bound protects memory against any other.
        var isTooMuch = _snapshotSubmitted - _snapshotStored >= 2 * context.Options.SnapshotWindowBytes;
        if ((long)chunk.Offset != _snapshotSubmitted || end > _snapshotTotal || chunk.Data.IsEmpty || isTooMuch)
        {
            SendSnapshotAck();
            return;
        }

        _snapshotSubmitted = end;
        context.Emit(new Effect.StoreSnapshotChunk(chunk));
    }

    // This replica has what the snapshot covers; installing it would lose what came after.
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

    // If installed, the leader asks what this replica has by now. Otherwise it begins to send its own snapshot.
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
