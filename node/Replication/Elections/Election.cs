using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// How a replica becomes the leader of a new epoch: a timer, and a campaign of <see cref="CampaignStep"/>s, from the <see cref="FreshRead"/> of the record,
/// without which nobody campaigns, over <see cref="PreVoteRound"/>, <see cref="EpochClaim"/> and <see cref="PrepareRound"/> to <see cref="TailFetch"/>. A
/// failed attempt is abandoned as a whole; the next one has a new pre-vote and a new epoch. Called within the core's steps.
/// </summary>
internal sealed class Election
{
    private readonly ReplicaContext _context;
    private readonly TailTruncation _truncation;
    private readonly Promises _promises;
    private readonly Action<ulong> _obeyOwnEpoch;
    private readonly Action<ulong, Quorum> _lead;
    private readonly TransferRead _transfer;
    private CampaignStep? _step;
    private ulong _campaigns;
    private long _timerUs;

    /// <param name="obeyOwnEpoch">Promises the epoch to this process itself, which ends any leadership of it.</param>
    /// <param name="lead">Called when the epoch is prepared and the tail is here: lead it with these voters.</param>
    public Election(ReplicaContext context, TailTruncation truncation, Promises promises, Action<ulong> obeyOwnEpoch, Action<ulong, Quorum> lead)
    {
        _context = context;
        _truncation = truncation;
        _promises = promises;
        _obeyOwnEpoch = obeyOwnEpoch;
        _lead = lead;
        _transfer = new TransferRead(context);
        RestartTimer();
        if (context.CampaignsFirst)
            _timerUs = context.NowUs;
    }

    /// <summary>This replica is a candidate, or a compare-and-set that may make it one is in progress. It gives no grants meanwhile.</summary>
    public bool IsCampaigning => _step is { Phase: >= CampaignPhase.Setting };

    /// <summary>The epoch whose leader told this replica to campaign, while it does. That leader's frames are then ignored. 0: none.</summary>
    public ulong LeavingEpoch { get; private set; }

    /// <summary>The next time at which something is due by the clock.</summary>
    /// <param name="leading">Whether this replica leads; then its timer does not run.</param>
    public long DueUs(bool leading) => _step switch
    {
        null => leading || !_context.Counts ? long.MaxValue : Math.Max(_timerUs, _promises.GrantEndUs),
        WonEpoch => Math.Min(_step.DueUs, _promises.GrantEndUs),
        _ => _step.DueUs,
    };

    /// <summary>
    /// Called when a leader was heard, a pre-vote granted, a Prepare received, or an epoch rose, because another replica may lead or win. The first leader of a
    /// new shard waits for one heartbeat only.
    /// </summary>
    /// <param name="leaderQuiescentUs">How long the leader that was heard may be silent.</param>
    public void RestartTimer(long leaderQuiescentUs = 0)
    {
        var options = _context.Options;
        var waitUs = _context.CampaignsFirst ? options.HeartbeatIntervalUs : _context.Random.Between(options.TimeoutMinUs, options.TimeoutMaxUs + 1);
        // A replica with an impaired disk or a doubted tree waits one timeout longer, so it campaigns only if no other did so within its own timeout.
        _timerUs = _context.NowUs + leaderQuiescentUs + waitUs + (_context.Impaired ? options.TimeoutMaxUs : 0);
    }

    /// <summary>The promised leader was heard. A campaign ends here if its compare-and-set is not sent yet or has an unknown outcome.</summary>
    public void HeardLeader(long leaderQuiescentUs)
    {
        RestartTimer(leaderQuiescentUs);
        if (_step is { YieldsToLeader: true })
            Enter(new Abandoned("heard from a leader"));
    }

    /// <summary>The promise rose, to another replica's epoch or to the one that is won.</summary>
    public void PromiseRose()
    {
        RestartTimer();
        if (_step is not null && _step.Epoch != _context.Promised)
            Enter(new Abandoned($"epoch {_context.Promised} is promised to another candidate"));
    }

    /// <summary>An epoch higher than that of this campaign exists.</summary>
    public void Fenced(ulong epoch)
    {
        if (_step is { Epoch: > 0 } && epoch > _step.Epoch)
            Enter(new Abandoned($"fenced by epoch {epoch}"));
    }

    /// <summary>A leader whose record names a higher epoch campaigns for a new one itself, without a pre-vote.</summary>
    public void CampaignWaived()
    {
        if (_step is null && _context.Counts)
            Enter(Candidacy(isWaived: true).Begin());
    }

    /// <summary>The leader intends to transfer to this replica, which reads the record now.</summary>
    public void ReadForTransfer()
    {
        if (_step is null && _context.Counts)
            _transfer.Begin();
    }

    /// <summary>The leader of the promised epoch has stopped serving for this replica, which campaigns without a pre-vote.</summary>
    public void CampaignForTransfer()
    {
        if (_step is not null || !_context.Counts)
            return;
        LeavingEpoch = _context.Promised;
        var candidacy = Candidacy(isWaived: true);
        Enter(_transfer.TryGet(out var record, out var revision) ? candidacy.Conclude(record, revision) : candidacy.Begin());
    }

    /// <summary>Does what is due by the clock.</summary>
    public void OnTick(bool leading)
    {
        if (_step is null && !leading && _context.Counts && _context.NowUs >= _timerUs && _promises.Free)
            Enter(Candidacy(isWaived: false).Begin());
        else if (_step is not null)
            Enter(_context.NowUs >= _step.DeadlineUs ? new Abandoned($"timed out in phase {_step.Phase}") : _step.OnTick());
    }

    /// <summary>The record was read. The id tells whether this election asked for it.</summary>
    public void OnRecordRead(long readId, ShardRecord? record, long revision)
    {
        if (readId == 0 || _transfer.TryEnd(readId, record, revision))
            return;
        if (_step is FreshRead read)
            Enter(read.OnRecordRead(readId, record, revision));
        else if (_step is EpochClaim claim)
            Enter(claim.OnRecordRead(readId, record));
    }

    public void OnPreVoteAnswer(Frame frame)
    {
        if (_step is PreVoteRound round)
            Enter(round.OnAnswer(frame));
    }

    public void OnSetDone(long setId, SetOutcome outcome)
    {
        if (_step is EpochClaim claim)
            Enter(claim.OnSetDone(setId, outcome));
    }

    public void OnPrepared(Frame frame)
    {
        if (_step is PrepareRound round)
            round.OnPrepared(frame);
    }

    public void OnTail(Frame frame)
    {
        if (_step is TailFetch fetch)
            Enter(fetch.OnTail(frame));
    }

    /// <summary>Draws all conclusions from what is known: this replica's promise is synced, a majority is prepared, a truncation is done.</summary>
    /// <param name="installing">A snapshot is being switched in, so the durable record may change.</param>
    public void Advance(bool installing)
    {
        if (_step is WonEpoch won && _promises.Free)
        {
            _obeyOwnEpoch(won.Epoch);
            Enter(new PrepareRound(_context, _truncation, won).Begin());
        }

        if (_step is PrepareRound round && !_truncation.Busy && !installing)
            Enter(round.Advance());
    }

    /// <summary>The truncation is done.</summary>
    public void OnTruncated(LogPosition kept)
    {
        if (_step is TailFetch fetch)
            fetch.OnTruncated(kept);
    }

    private FreshRead Candidacy(bool isWaived) => new(_context, ++_campaigns, isWaived);

    private void Enter(CampaignStep next)
    {
        if (next == _step)
            return;
        Invariant.Check(
            _step is null || next.Phase > _step.Phase || (_step.Phase, next.Phase) is (CampaignPhase.Fetching, CampaignPhase.Preparing),
            $"A campaign goes from {_step?.Phase} to {next.Phase}.");
        Invariant.Check(next.Epoch == 0 || _step is not { Epoch: > 0 } || next.Epoch == _step.Epoch, $"A campaign for epoch {_step?.Epoch} continues with "
            + $"epoch {next.Epoch}.");
        if (next.Phase != CampaignPhase.Ended)
        {
            _step = next;
            return;
        }

        _step = null;
        LeavingEpoch = 0;
        if (next is ReadyToLead ready)
            _lead(ready.Epoch, ready.Voters);
        else if (next is Abandoned abandoned)
            OnAbandoned(abandoned);
    }

    private void OnAbandoned(Abandoned abandoned)
    {
        _context.Log($"stopped campaigning: {abandoned.Why}");
        RestartTimer();
        _timerUs += abandoned.LaterUs;
    }
}
