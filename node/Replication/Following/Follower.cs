using KvCluster.Internal.V1;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Following;

/// <summary>
/// A replica under its promised leader. It matches its journal with the leader's, appends, truncates, acknowledges what is durable and matched, and follows the
/// committed etag. All of this state belongs to one epoch and is reset when the promise rises. Called within the core's steps.
/// </summary>
internal sealed class Follower
{
    // Frames that came before the promise was synced or during a truncation. The leader would send them again; keeping the first few saves a timeout after each
    // election.
    private const int ParkedMax = 16;

    // A larger value from a leader is capped at this, because no disk would count as slow beside it.
    private const ulong PaceUsMax = 10_000_000;

    private readonly ReplicaContext _context;
    private readonly TailTruncation _truncation;
    private readonly Promises _promises;
    private readonly LeaderMatch _match;
    private readonly SnapshotReception _snapshots;
    private readonly FollowerReads _reads;
    private readonly DigestAnswers _digests;
    private readonly Freshness _freshness = new();
    private readonly List<Frame> _parked = [];

    // The committed etag of the present leader. This replica may lack that record or have another in its place, so it commits only up to the match (R10).
    private Etag _leaderCommitted;

    // The etag last acknowledged in this epoch: durable and matched (R7). It only rises, but is reset when a recovery ends, so that it is sent again.
    private Etag _acknowledgedSent;
    private long _leaderPaceUs;

    public Follower(ReplicaContext context, TailTruncation truncation, Promises promises)
    {
        _context = context;
        _truncation = truncation;
        _promises = promises;
        _match = new LeaderMatch(context);
        _snapshots = new SnapshotReception(context, truncation, _match);
        _reads = new FollowerReads(context);
        _digests = new DigestAnswers(context);
    }

    /// <summary>The leader of the promised epoch, once it was heard; 0 before.</summary>
    public ReplicaId Leader => _match.Leader;

    /// <summary>The snapshot that it takes, if any.</summary>
    public SnapshotReception Snapshots => _snapshots;

    /// <summary>
    /// When this replica last had everything that its leader had committed, by the boot clock; <see cref="long.MinValue"/> if not since its start.
    /// </summary>
    public long CurrentUs => _freshness.CurrentUs;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => _reads.DueUs;

    /// <summary>Parked frames could be handled now; step again at once.</summary>
    public bool HasWork => _parked.Count > 0 && !Blocked;

    /// <summary>What may be acknowledged in this epoch: durable here, and matched with the leader.</summary>
    private Etag Acknowledgeable => _snapshots.Installing ? Etag.None : _match.Durable;

    // Whether the leader may be answered: the promise is synced.
    private bool MayAnswer => _context.Control.PromiseSynced && !_snapshots.Installing;

    private bool Blocked => _truncation.Busy || !MayAnswer;

    /// <summary>The promise rose. What the old leader said no longer counts.</summary>
    public void StartEpoch()
    {
        _match.StartEpoch();
        _leaderCommitted = _acknowledgedSent = Etag.None;
        _parked.Clear();
        _snapshots.StartEpoch();
        _context.OwnDigest.Forget();
        _context.Pace.Forget();
        _leaderPaceUs = 0;
        _truncation.Abandon();
        _reads.RefuseAll();
    }

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick() => _reads.OnTick();

    /// <summary>A linearizable read arrived here. The leader is asked, if this replica does not lead itself and one is known.</summary>
    public void OnRead(long readId, bool leads) => _reads.Add(readId, leads ? ReplicaId.None : Leader);

    /// <summary>The digest of this replica's trees is known.</summary>
    public void OnDigestTaken() => _digests.Report(Leader);

    /// <summary>A frame of the promised leader in the promised epoch.</summary>
    /// <param name="frame">The frame.</param>
    /// <param name="isCampaigning">Whether this replica may become a candidate, and hence gives no grants.</param>
    public void OnLeaderFrame(Frame frame, bool isCampaigning)
    {
        switch (frame.PayloadCase)
        {
            case Frame.PayloadOneofCase.Heartbeat:
                HearLeader(frame);
                _context.ShardTimes.Hear(frame.Epoch, frame.Heartbeat.ShardTimeUs);
                if (MayAnswer)
                    AnswerHeartbeat(frame, _promises.TryGrant(frame.Heartbeat, isCampaigning));
                LearnCommitted(frame, frame.Heartbeat.Committed.FromWire());
                _digests.OnHeartbeat(frame);
                break;
            case Frame.PayloadOneofCase.ReadIndexAnswer:
                // The committed etag first, so that most reads can be answered at once and not with the next heartbeat.
                LearnCommitted(frame, frame.ReadIndexAnswer.Committed.FromWire());
                _reads.OnAnswer(frame);
                break;
            case Frame.PayloadOneofCase.DigestAsk:
                HearLeader(frame);
                if (MayAnswer)
                    _digests.OnAsk(frame);
                break;
            case Frame.PayloadOneofCase.DigestDiffers:
                _digests.OnDiffers(frame.DigestDiffers);
                break;
            default:
                OnJournalFrame(frame);
                break;
        }
    }

    /// <summary>Any frame of the promised leader shows who leads.</summary>
    public void HearLeader(Frame frame) => _match.Hear(frame);

    /// <summary>
    /// Handles frames that waited for a promise, a truncation or an installation that is done now. At most one append per step, because the next one must see
    /// the journal that this one leaves.
    /// </summary>
    public void ReplayParked()
    {
        while (HasWork && !_context.Effects.Any(effect => effect is Effect.AppendBodies))
        {
            var frame = _parked[0];
            _parked.RemoveAt(0);
            Handle(frame);
        }
    }

    /// <summary>The truncation is done. The record kept is common with the leader for which it was made.</summary>
    public void OnTruncated(LogPosition kept)
    {
        if (_match.Leader.IsNone)
            return;
        _match.Note(kept.Etag);
        SendMatch(_context.FrameTo(_match.Leader, _context.Promised), found: true, kept);
    }

    /// <summary>Sends an acknowledgement if it has risen, and updates the progress in the control file.</summary>
    public void Acknowledge()
    {
        if (_match.Leader.IsNone || Blocked)
            return;
        _context.Pace.Follow(_context.Journal.Durable.Etag, _context.Journal.DurableAtUs, _leaderPaceUs, _context.NowUs);
        var etag = Acknowledgeable;
        _context.NoteProgress(_context.Recovering ? Etag.None : etag);
        if (etag <= _acknowledgedSent)
            return;
        Invariant.Check(
            _context.Control.PromiseSynced && etag <= _context.Journal.Durable.Etag,
            $"{etag} is acknowledged in epoch {_context.Promised}; epoch {_context.Control.Synced.PromisedEpoch} is synced, and "
            + $"{_context.Journal.Durable.Name} is durable.");
        _acknowledgedSent = etag;
        var frame = _context.FrameTo(_match.Leader, _context.Promised);
        frame.Ack = new Ack { Durable = etag.ToWire(), Recovering = _context.Recovering };
        _context.Send(frame);
    }

    private void OnJournalFrame(Frame frame)
    {
        HearLeader(frame);
        if (frame.PayloadCase == Frame.PayloadOneofCase.Append)
            _context.ShardTimes.Hear(frame.Epoch, frame.Append.ShardTimeUs);
        // Behind the parked frames, to keep the order.
        if (Blocked || _parked.Count > 0)
        {
            if (_parked.Count < ParkedMax)
                _parked.Add(frame);
            return;
        }

        Handle(frame);
    }

    private void AnswerHeartbeat(Frame heartbeat, bool granted)
    {
        _leaderPaceUs = (long)Math.Min(heartbeat.Heartbeat.PaceUs, PaceUsMax);
        var frame = _context.FrameTo(heartbeat.SenderId, heartbeat.Epoch);
        frame.HeartbeatAck = new HeartbeatAck
        {
            Round = heartbeat.Heartbeat.Round,
            Granted = granted,
            Durable = Acknowledgeable.ToWire(),
            Recovering = _context.Recovering,
            DiskImpaired = _context.Impaired,
            Awaited = heartbeat.Heartbeat.Awaited,
        };
        _context.Send(frame);
    }

    // The leader's committed etag, from a heartbeat, an append or the answer to a read index.
    private void LearnCommitted(Frame frame, Etag committed)
    {
        _leaderCommitted = Etag.Max(_leaderCommitted, committed);
        // Before the first match in this epoch nothing is committed here, because this replica's tail may differ from the leader's.
        if (!Blocked && _match.IsAny)
            _context.CommitTo(Etag.Min(_leaderCommitted, _match.Last));
        if (committed.Epoch == frame.Epoch)
            _freshness.Heard(committed, _context.Committed, _context.NowUs);
        EndRecovery(frame, committed);
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
                _snapshots.OnChunk(frame.SnapshotChunk);
                break;
        }
    }

    // Nothing waits for the mark to be synced, because nothing relies on it meanwhile. A crash before that leaves the replica as it was before the probe,
    // and the leader, which remembers across any number of the replica's restarts, tells the next process before it sends it anything. If the leader is gone
    // by then, nobody knows of the loss, as before the probe. Then only the control file can reveal it, which is some seconds old (HardStateKeeper.Every).
    private void OnProbe(Frame frame, Probe probe)
    {
        var remembered = probe.Remembered.FromWire();
        if (frame.ReceiverIncarnation == _context.Incarnation && _context.Journal.Last.Etag < remembered && !_context.Recovering)
        {
            _context.Recovering = true;
            _context.Emit(new Effect.Alarm(
                $"the journal ends at {_context.Journal.Last.Name}, before {remembered}, which this replica acknowledged; the replica is recovering"));
            _context.Control.Require(_context.Control.Wanted with { Acknowledged = Etag.Max(_context.Control.Wanted.Acknowledged, remembered) });
        }

        Answer(frame, probe.Record.FromWire());
    }

    // Tells whether the journal has this record of the leader, and otherwise which one may be common.
    private void Answer(Frame frame, LogPosition asked)
    {
        var answer = _context.FrameTo(frame.SenderId, frame.Epoch);
        if (TailMatch.Has(_context.Journal, asked))
        {
            _match.Note(asked.Etag);
            SendMatch(answer, found: true, asked);
            return;
        }

        // A journal that no longer reaches back that far begins at a checkpoint, which is committed and hence common.
        if (_context.Journal.TryFindAtOrBefore(asked.Etag, out var own) || _context.Journal.TryFindAtOrBefore(_context.Committed, out own))
            SendMatch(answer, found: false, own.Name);
    }

    private void OnAppend(Frame frame, Append append)
    {
        var match = TailMatch.Of(_context.Journal, append.Previous.FromWire(), append.Bodies, frame.Epoch);
        switch (match.Fit)
        {
            case TailFit.Missing:
                Answer(frame, append.Previous.FromWire());
                return;
            case TailFit.Damaged:
                _context.Emit(new Effect.Alarm($"an append from replica {frame.SenderId} in epoch {frame.Epoch} is damaged and was dropped"));
                return;
            case TailFit.Conflict:
                BeginTruncation(frame, match.Common);
                return;
        }

        _match.Note(match.Common.Etag);
        if (match.New.Count > 0)
        {
            _context.Append(match);
            _match.Note(match.End.Etag);
            // A replica that is being caught up writes much at once, which tells nothing of its disk.
            if (append.Committed.FromWire() <= match.End.Etag)
                _context.Pace.Appended(match.End.Etag, _context.NowUs);
        }

        LearnCommitted(frame, append.Committed.FromWire());
    }

    private void BeginTruncation(Frame frame, LogPosition common)
    {
        _context.Pace.Forget();
        _match.Note(common.Etag);
        if (_truncation.TryBegin(common, frame.Epoch))
        {
            Invariant.Check(_parked.Count <= ParkedMax, $"{_parked.Count} frames wait for a truncation.");
            _parked.Insert(0, frame);
        }
    }

    private void SendMatch(Frame frame, bool found, LogPosition record)
    {
        frame.Match = new Match { Found = found, Record = record.ToWire(), Durable = Acknowledgeable.ToWire(), Recovering = _context.Recovering };
        _context.Send(frame);
    }

    // Recovery ends when the journal, durable and matched, reaches the committed etag of a leader that serves its own epoch and knows this process.
    private void EndRecovery(Frame frame, Etag committed)
    {
        if (!_context.Recovering || Blocked || committed.Epoch != frame.Epoch || frame.ReceiverIncarnation != _context.Incarnation)
            return;
        var recovered = Acknowledgeable;
        if (recovered < committed)
            return;
        _context.Recovering = false;
        _context.Log($"recovered to {recovered}; the leader's committed etag is {committed}");
        _context.Control.Require(_context.Control.Wanted with { Acknowledged = recovered });
        // The acknowledgement was sent as that of a recovering replica, which does not count. It is sent again, because it counts now.
        _acknowledgedSent = Etag.None;
    }
}
