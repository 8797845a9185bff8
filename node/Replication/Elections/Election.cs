using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Elections;

/// <summary>The steps of a campaign, in their order.</summary>
internal enum ElectionPhase
{
    /// <summary>Not campaigning; the timer runs.</summary>
    Idle,

    /// <summary>Reading the shard's record afresh.</summary>
    Reading,

    /// <summary>Pre-vote: asking the voters whether they heard a leader.</summary>
    Asking,

    /// <summary>The compare-and-set is in progress, or is repeated because its outcome is unknown.</summary>
    Setting,

    /// <summary>A repeated compare-and-set was lost. Reading whether an earlier attempt had won.</summary>
    Settling,

    /// <summary>The epoch is won, but this replica's grant to an older leader still runs.</summary>
    Waiting,

    /// <summary>Collecting promises.</summary>
    Preparing,

    /// <summary>Fetching the greatest tail among the prepared replicas.</summary>
    Fetching,
}

/// <summary>
/// How a replica becomes the leader of a new epoch: timer, fresh read, pre-vote, one compare-and-set, Prepare, fetching the greatest tail. A failed attempt
/// is abandoned as a whole; the next one has a new pre-vote and a new epoch.
/// </summary>
internal sealed class Election
{
    private readonly ReplicaContext _context;
    private readonly TailCut _cut;
    private readonly Promises _promises;
    private readonly Action<ulong> _obeyOwnEpoch;
    private readonly Action<ulong, Quorum> _lead;
    private readonly HashSet<ulong> _granted = [];
    private readonly Dictionary<ulong, LogPosition> _prepared = [];
    private long _timerUs;
    private long _deadlineUs;
    private long _resendUs = long.MaxValue;
    private long _requestId;
    private ulong _number;
    private bool _waived;
    private bool _unknown;
    private ulong _epoch;
    private ShardRecord _read;
    private long _readRevision;
    private ShardRecord? _put;
    private Quorum _quorum;
    private ulong _source;
    private LogPosition _greatest;
    private LogPosition _fetchAfter;
    private long _sourceDeadlineUs;
    private long _transferReadId;
    private (ShardRecord Record, long Revision, ulong Epoch)? _transferRead;

    /// <param name="obeyOwnEpoch">Promises the epoch to this process itself, which ends any leadership of it.</param>
    /// <param name="lead">Called when the epoch is prepared and the tail is here: lead it with these voters.</param>
    public Election(ReplicaContext context, TailCut cut, Promises promises, Action<ulong> obeyOwnEpoch, Action<ulong, Quorum> lead)
    {
        _context = context;
        _cut = cut;
        _promises = promises;
        _obeyOwnEpoch = obeyOwnEpoch;
        _lead = lead;
        _read = context.View.Record;
        _quorum = context.View.Voters;
        RestartTimer();
        if (CampaignsFirst)
            _timerUs = context.NowUs;
    }

    public ElectionPhase Phase { get; private set; }

    /// <summary>A compare-and-set that may make this replica a candidate is in progress, or it is a candidate. It gives no grants.</summary>
    public bool IsCampaigning => Phase >= ElectionPhase.Setting;

    /// <summary>The next time at which something is due by the clock.</summary>
    /// <param name="leading">Whether this replica leads; then its timer does not run.</param>
    public long DueUs(bool leading) => Phase switch
    {
        ElectionPhase.Idle => leading || !MayStand ? long.MaxValue : Math.Max(_timerUs, _promises.GrantEndUs),
        ElectionPhase.Waiting => Math.Min(_deadlineUs, _promises.GrantEndUs),
        _ => Math.Min(_deadlineUs, Phase == ElectionPhase.Fetching ? Math.Min(_resendUs, _sourceDeadlineUs) : _resendUs),
    };

    private bool MayStand => _context.Counts;

    private bool CampaignsFirst => _context.View.IsFirstLeader(_context.Self) && _context.EpochSeen == 0;

    private ReplicationOptions Options => _context.Options;

    /// <summary>
    /// Called when a leader was heard, a pre-vote granted, a Prepare received, or an epoch rose, because another replica may lead or win. The first leader of a
    /// new shard waits for one heartbeat only.
    /// </summary>
    /// <param name="leaderQuiescentUs">How long the leader that was heard may be silent.</param>
    public void RestartTimer(long leaderQuiescentUs = 0)
    {
        var waitUs = CampaignsFirst ? Options.HeartbeatIntervalUs : _context.Random.Between(Options.TimeoutLeastUs, Options.TimeoutGreatestUs + 1);
        // With an impaired disk or a doubted tree it campaigns only if the others have not within their own time.
        _timerUs = _context.NowUs + leaderQuiescentUs + waitUs + (_context.Impaired ? Options.TimeoutGreatestUs : 0);
    }

    /// <summary>The promised leader was heard. A campaign ends here if its compare-and-set is not sent yet or has an unknown outcome.</summary>
    public void HeardLeader(long leaderQuiescentUs)
    {
        RestartTimer(leaderQuiescentUs);
        if (Phase is ElectionPhase.Reading or ElectionPhase.Asking || (Phase == ElectionPhase.Setting && _unknown))
            Abandon("heard from a leader");
    }

    /// <summary>The promise rose to another replica's epoch.</summary>
    public void PromiseRose()
    {
        RestartTimer();
        if (Phase != ElectionPhase.Idle && !(Phase >= ElectionPhase.Waiting && _epoch == _context.Promised))
            Abandon($"epoch {_context.Promised} is promised to another candidate");
    }

    /// <summary>An epoch higher than that of this campaign exists.</summary>
    public void Fenced(ulong epoch)
    {
        if (Phase >= ElectionPhase.Waiting && epoch > _epoch)
            Abandon($"fenced by epoch {epoch}");
    }

    /// <summary>A leader whose record names a higher epoch campaigns for a new one itself, without a pre-vote.</summary>
    public void StandWaived()
    {
        if (Phase == ElectionPhase.Idle && MayStand)
        {
            Begin(waived: true);
            Read();
        }
    }

    /// <summary>The epoch whose leader told this replica to campaign, while it does. That leader's frames are then ignored. 0: none.</summary>
    public ulong LeavingEpoch { get; private set; }

    /// <summary>The leader intends to transfer to this replica. It reads the record now, so that no read is needed while nobody serves.</summary>
    public void ReadForTransfer()
    {
        if (Phase != ElectionPhase.Idle || !MayStand || _transferReadId != 0)
            return;
        _transferReadId = _context.NextRequestId();
        _context.ReadRecord(_transferReadId);
    }

    /// <summary>The leader of the promised epoch has stopped serving for this replica, which campaigns without a pre-vote.</summary>
    public void CampaignForTransfer()
    {
        if (Phase != ElectionPhase.Idle || !MayStand)
            return;
        Begin(waived: true);
        LeavingEpoch = _context.Promised;
        if (_transferRead is { } read && read.Epoch == _context.Promised && !_context.CoordinatorDoubted)
            OnFreshRecord(read.Record, read.Revision);
        else
            Read();
    }

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick(bool leading)
    {
        var nowUs = _context.NowUs;
        if (Phase == ElectionPhase.Idle)
        {
            if (!leading && MayStand && nowUs >= _timerUs && _promises.Free)
            {
                Begin(waived: false);
                Read();
            }

            return;
        }

        if (nowUs >= _deadlineUs)
        {
            Abandon($"timed out in phase {Phase}");
            return;
        }

        if (Phase == ElectionPhase.Fetching && nowUs >= _sourceDeadlineUs)
            DropSource("did not answer");
        if (nowUs >= _resendUs)
            Resend();
    }

    /// <summary>The record was read. The id tells whether this election asked for it.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        if (readId == 0)
            return;
        if (readId == _transferReadId)
        {
            _transferReadId = 0;
            // The leader asks again.
            if (record is null)
                return;
            _transferRead = (record, revision, _context.Promised);
            var ready = _context.FrameTo(_context.Control.Wanted.PromisedLeader, _context.Promised);
            ready.TransferReady = new TransferReady();
            _context.Send(ready);
            return;
        }

        if (readId != _requestId)
            return;
        if (Phase == ElectionPhase.Reading)
            OnFreshRecord(record, revision);
        else if (Phase == ElectionPhase.Settling)
            OnSettlingRecord(record);
    }

    public void OnPreVoteAnswer(Frame frame)
    {
        if (Phase != ElectionPhase.Asking || frame.PreVoteAnswer.Number != _number || frame.ReceiverIncarnation != _context.Incarnation)
            return;
        if (frame.PreVoteAnswer.Granted)
            _granted.Add(frame.Sender);
        SetIfAgreed();
    }

    public void OnSetDone(long setId, SetOutcome outcome)
    {
        if (Phase != ElectionPhase.Setting || setId != _requestId)
            return;
        switch (outcome)
        {
            case SetOutcome.Won:
                Won();
                break;
            case SetOutcome.Lost when _unknown:
                // This attempt put nothing, but an earlier one may have.
                Phase = ElectionPhase.Settling;
                Read();
                break;
            case SetOutcome.Lost:
                Abandon("another writer changed the record first");
                break;
            case SetOutcome.Unknown:
                _unknown = true;
                _requestId = 0;
                _resendUs = _context.NowUs + Options.CoordinatorRetryUs;
                break;
        }
    }

    public void OnPrepared(Frame frame)
    {
        if (Phase != ElectionPhase.Preparing || frame.Epoch != _epoch)
            return;
        _prepared[frame.Sender] = frame.Prepared.Last.FromWire();
    }

    public void OnTail(Frame frame)
    {
        var tail = frame.Tail;
        if (Phase != ElectionPhase.Fetching || frame.Epoch != _epoch || frame.Sender != _source || _cut.Busy)
            return;
        _sourceDeadlineUs = _context.NowUs + Options.TimeoutLeastUs;
        if (tail.Gone)
        {
            Yield("no longer has the records in between");
            return;
        }

        var after = tail.After.FromWire();
        if (!tail.Found)
            StepBack(after);
        else if (after == _fetchAfter)
            Take(tail);
    }

    /// <summary>Draws all conclusions from what is known: this replica's promise is synced, a majority is prepared, a truncation is done.</summary>
    /// <param name="installing">A snapshot is being switched in, so the durable record may change.</param>
    public void Advance(bool installing)
    {
        if (Phase == ElectionPhase.Waiting && _promises.Free)
            Prepare();
        if (Phase != ElectionPhase.Preparing || _cut.Busy || installing)
            return;
        if (_context.Control.PromiseSynced && MayStand)
            _prepared[_context.Self] = _context.Journal.Durable.Name;
        if (_prepared.ContainsKey(_context.Self) && _quorum.Reached(_prepared.ContainsKey))
            ChooseTail();
    }

    /// <summary>The truncation is done. The fetch continues from the record kept.</summary>
    public void OnCutDone(LogPosition kept)
    {
        if (Phase != ElectionPhase.Fetching)
            return;
        _fetchAfter = kept;
        Fetch();
    }

    private void Begin(bool waived)
    {
        _waived = waived;
        _unknown = false;
        _epoch = 0;
        _deadlineUs = _context.NowUs + (2 * Options.TimeoutGreatestUs);
        _requestId = 0;
        _resendUs = long.MaxValue;
        Phase = ElectionPhase.Reading;
    }

    // The record is read before anyone is asked, because a replica without a coordinator must not delay the others' timers.
    private void Read()
    {
        _resendUs = long.MaxValue;
        _requestId = _context.NextRequestId();
        _context.ReadRecord(_requestId);
    }

    private void OnFreshRecord(ShardRecord? record, long revision)
    {
        if (record is null || !ShardView.MayVote(record, _context.Self) || _context.CoordinatorDoubted)
        {
            Abandon(record is null ? "the coordinator does not answer" : "the record does not allow this replica to campaign");
            return;
        }

        _read = record;
        _readRevision = revision;
        // Only a voter of the record that the compare-and-set compares may campaign, and that record's voters are its quorum.
        _quorum = ShardView.VotersOf(record);
        if (_waived)
        {
            Set();
            return;
        }

        Phase = ElectionPhase.Asking;
        _number++;
        _granted.Clear();
        _granted.Add(_context.Self);
        _deadlineUs = _context.NowUs + (CampaignsFirst ? Options.HeartbeatIntervalUs : Options.TimeoutLeastUs / 2);
        foreach (var voter in _quorum.Voters.Where(voter => voter != _context.Self))
        {
            var frame = _context.FrameTo(voter, Math.Max(_context.EpochSeen, _context.Promised));
            frame.PreVote = new PreVote { Number = _number };
            _context.Send(frame);
        }

        SetIfAgreed();
    }

    private void SetIfAgreed()
    {
        if (_quorum.Reached(_granted.Contains))
            Set();
    }

    private void Set()
    {
        _epoch = Math.Max(_read.Epoch, Math.Max(_context.EpochSeen, _context.Promised)) + 1;
        _put = _read.Clone();
        _put.Epoch = _epoch;
        _put.Leader = _context.Self;
        _put.LeaderIncarnation = _context.Incarnation;
        Phase = ElectionPhase.Setting;
        _deadlineUs = _context.NowUs + (2 * Options.TimeoutGreatestUs);
        Attempt();
    }

    private void Attempt()
    {
        _resendUs = long.MaxValue;
        _requestId = _context.NextRequestId();
        _context.Emit(new Effect.CompareAndSet(_requestId, _put!, _readRevision));
    }

    // Only this process can have put this epoch with its incarnation, so such a record is this election's own.
    private void OnSettlingRecord(ShardRecord? record)
    {
        if (record is null)
            _resendUs = _context.NowUs + Options.CoordinatorRetryUs;
        else if (record.Epoch == _epoch && record.Leader == _context.Self && record.LeaderIncarnation == _context.Incarnation)
            Won();
        else
            Abandon("another writer changed the record first");
    }

    private void Won()
    {
        _requestId = 0;
        if (_epoch <= _context.Promised)
        {
            Abandon($"won epoch {_epoch}, but epoch {_context.Promised} is promised");
            return;
        }

        _context.Log($"won epoch {_epoch}");
        Phase = ElectionPhase.Waiting;
        _resendUs = long.MaxValue;
        _deadlineUs = _context.NowUs + (2 * Options.TimeoutGreatestUs);
    }

    private void Prepare()
    {
        Phase = ElectionPhase.Preparing;
        _prepared.Clear();
        _obeyOwnEpoch(_epoch);
        Resend();
    }

    private void Resend()
    {
        switch (Phase)
        {
            case ElectionPhase.Setting:
                Attempt();
                break;
            case ElectionPhase.Settling:
                Read();
                break;
            case ElectionPhase.Preparing:
                SendPrepare();
                break;
            case ElectionPhase.Fetching when !_cut.Busy:
                Fetch();
                break;
            default:
                _resendUs = _context.NowUs + Options.HeartbeatIntervalUs;
                break;
        }
    }

    private void SendPrepare()
    {
        _resendUs = _context.NowUs + Options.HeartbeatIntervalUs;
        foreach (var replica in _context.View.Record.Replicas)
        {
            if (replica.Replica == _context.Self || _prepared.ContainsKey(replica.Replica))
                continue;
            var frame = _context.FrameTo(replica.Replica, _epoch);
            frame.Prepare = new Prepare();
            _context.Send(frame);
        }
    }

    // Everything committed is in the greatest tail of a majority.
    private void ChooseTail()
    {
        _source = _context.Self;
        _greatest = _prepared[_context.Self];
        foreach (var (replica, last) in _prepared)
        {
            if (_quorum.Contains(replica) && last.Etag > _greatest.Etag)
                (_source, _greatest) = (replica, last);
        }

        if (_context.Journal.Last.Etag >= _greatest.Etag)
        {
            Open();
            return;
        }

        _context.Log($"fetching the tail up to {_greatest} from replica {_source:x}; this replica's journal ends at {_context.Journal.Last.Name}");
        Phase = ElectionPhase.Fetching;
        _sourceDeadlineUs = _context.NowUs + Options.TimeoutLeastUs;
        _fetchAfter = _context.Journal.Last.Name;
        Fetch();
    }

    private void Fetch()
    {
        _resendUs = _context.NowUs + Options.HeartbeatIntervalUs;
        var frame = _context.FrameTo(_source, _epoch);
        frame.FetchTail = new FetchTail { After = _fetchAfter.ToWire() };
        _context.Send(frame);
    }

    private void StepBack(LogPosition hint)
    {
        if (TailMatch.TryStepBack(_context.Journal, _fetchAfter, hint, out var next, out _))
        {
            _fetchAfter = next;
            Fetch();
        }
        else
        {
            Abandon("this replica's journal does not reach back to the greatest tail");
        }
    }

    private void Take(Tail tail)
    {
        var match = TailMatch.Of(_context.Journal, _fetchAfter, tail.Bodies, _epoch - 1);
        switch (match.Fit)
        {
            case TailFit.Conflict:
                if (!_cut.TryBegin(match.Common, _epoch))
                    Abandon("this replica's journal cannot be truncated");
                return;
            case TailFit.Fits when tail.Bodies.Count > 0:
                break;
            default:
                Yield("sent a tail that is damaged or ends early");
                return;
        }

        if (match.FirstNew < tail.Bodies.Count)
            _context.Emit(new Effect.AppendBodies(tail.Bodies, match.FirstNew));
        _fetchAfter = match.End;
        if (match.End.Etag >= _greatest.Etag)
            Open();
        else
            Fetch();
    }

    private void DropSource(string why)
    {
        _context.Log($"replica {_source:x} {why}; a majority is needed again");
        _prepared.Remove(_source);
        Phase = ElectionPhase.Preparing;
        SendPrepare();
    }

    // The source has what this replica lacks, in its tree if not in its journal, so it can lead and then send a snapshot. Asking it again would restart the
    // timers of just those replicas that have the tail, so that only replicas without it would ever campaign. This replica's timer is set to fire after all of
    // theirs, in case the source is not reached or cannot campaign.
    private void Yield(string why)
    {
        var frame = _context.FrameTo(_source, _epoch);
        frame.Release = new Release { Stand = true };
        _context.Send(frame);
        Abandon($"replica {_source:x} {why} and should campaign itself");
        _timerUs += Options.TimeoutGreatestUs;
    }

    private void Open()
    {
        Phase = ElectionPhase.Idle;
        LeavingEpoch = 0;
        _lead(_epoch, _quorum);
    }

    private void Abandon(string why)
    {
        _context.Log($"stopped campaigning: {why}");
        Phase = ElectionPhase.Idle;
        LeavingEpoch = 0;
        _requestId = 0;
        RestartTimer();
    }
}
