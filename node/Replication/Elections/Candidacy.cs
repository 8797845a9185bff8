using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Elections;

// From the decision to campaign to the epoch: a fresh read of the shard's record, the pre-vote, the compare-and-set, and the read that settles its outcome.

/// <summary>Reading the shard's record afresh, before anyone is asked, because a replica without a coordinator must not delay the others' timers.</summary>
/// <param name="context">The replica.</param>
/// <param name="number">The number of this campaign.</param>
/// <param name="isWaived">Whether there is no pre-vote.</param>
internal sealed class FreshRead(ReplicaContext context, ulong number, bool isWaived)
    : CampaignStep(CampaignPhase.Reading, context.NowUs + (2 * context.Options.TimeoutGreatestUs))
{
    private long _readId;

    public override bool YieldsToLeader => true;

    public FreshRead Begin()
    {
        _readId = context.NextRequestId();
        context.ReadRecord(_readId);
        return this;
    }

    /// <summary>The record was read. The id tells whether this step asked for it.</summary>
    public CampaignStep OnRecordRead(long readId, ShardRecord? record, long revision) => readId == _readId ? Conclude(record, revision) : this;

    /// <summary>Continues with this record.</summary>
    public CampaignStep Conclude(ShardRecord? record, long revision)
    {
        if (record is null)
            return new Abandoned("the coordinator does not answer");
        if (!ShardView.MayVote(record, context.Self) || context.CoordinatorDoubted)
            return new Abandoned("the record does not allow this replica to campaign");
        return isWaived ? new EpochClaim(context, record, revision).Begin() : new PreVoteRound(context, number, record, revision).Begin();
    }
}

/// <summary>Pre-vote: asking the voters whether they heard a leader.</summary>
internal sealed class PreVoteRound(ReplicaContext context, ulong number, ShardRecord record, long revision)
    : CampaignStep(CampaignPhase.Asking, context.NowUs + (context.CampaignsFirst ? context.Options.HeartbeatIntervalUs : context.Options.TimeoutLeastUs / 2))
{
    private readonly Quorum _voters = ShardView.VotersOf(record);
    private readonly HashSet<ulong> _granted = [context.Self];

    public override bool YieldsToLeader => true;

    public CampaignStep Begin()
    {
        foreach (var voter in _voters.Voters.Where(voter => voter != context.Self))
        {
            var frame = context.FrameTo(voter, Math.Max(context.EpochSeen, context.Promised));
            frame.PreVote = new PreVote { Number = number };
            context.Send(frame);
        }

        return ClaimIfAgreed();
    }

    public CampaignStep OnAnswer(Frame frame)
    {
        if (frame.PreVoteAnswer.Number != number || frame.ReceiverIncarnation != context.Incarnation)
            return this;
        if (frame.PreVoteAnswer.Granted)
            _granted.Add(frame.Sender);
        return ClaimIfAgreed();
    }

    private CampaignStep ClaimIfAgreed() => _voters.Reached(_granted.Contains) ? new EpochClaim(context, record, revision).Begin() : this;
}

/// <summary>
/// The compare-and-set that assigns the next epoch to this process. Only a voter of the record that it compares may campaign, and that record's voters are the
/// epoch's quorum.
/// </summary>
internal sealed class EpochClaim : CampaignStep
{
    private readonly ReplicaContext _context;
    private readonly ShardRecord _put;
    private readonly long _revision;
    private readonly Quorum _voters;
    private long _setId;
    private bool _isUnknown;

    /// <param name="context">The replica.</param>
    /// <param name="read">The record as it was read.</param>
    /// <param name="revision">Its mod revision.</param>
    public EpochClaim(ReplicaContext context, ShardRecord read, long revision)
        : base(CampaignPhase.Setting, context.NowUs + (2 * context.Options.TimeoutGreatestUs))
    {
        _context = context;
        _revision = revision;
        _voters = ShardView.VotersOf(read);
        _put = read.Clone();
        _put.Epoch = Math.Max(read.Epoch, Math.Max(context.EpochSeen, context.Promised)) + 1;
        _put.Leader = context.Self;
        _put.LeaderIncarnation = context.Incarnation;
    }

    /// <summary>With an unknown outcome the epoch may never be this replica's, so a leader that is heard is followed.</summary>
    public override bool YieldsToLeader => _isUnknown;

    public EpochClaim Begin()
    {
        ResendUs = long.MaxValue;
        _setId = _context.NextRequestId();
        _context.Emit(new Effect.CompareAndSet(_setId, _put, _revision));
        return this;
    }

    public override CampaignStep OnTick() => _context.NowUs >= ResendUs ? Begin() : this;

    public CampaignStep OnSetDone(long setId, SetOutcome outcome)
    {
        if (setId != _setId)
            return this;
        switch (outcome)
        {
            case SetOutcome.Won:
                return WonEpoch.Of(_context, _put.Epoch, _voters);
            case SetOutcome.Lost when _isUnknown:
                // This attempt put nothing, but an earlier one may have.
                return new ClaimSettlement(_context, _put.Epoch, _voters, DeadlineUs).Begin();
            case SetOutcome.Lost:
                return new Abandoned("another writer changed the record first");
            default:
                _isUnknown = true;
                _setId = 0;
                ResendUs = _context.NowUs + _context.Options.CoordinatorRetryUs;
                return this;
        }
    }
}

/// <summary>Reading whether an attempt of the compare-and-set with an unknown outcome had won.</summary>
internal sealed class ClaimSettlement(ReplicaContext context, ulong epoch, Quorum voters, long deadlineUs) : CampaignStep(CampaignPhase.Settling, deadlineUs)
{
    private long _readId;

    public ClaimSettlement Begin()
    {
        ResendUs = long.MaxValue;
        _readId = context.NextRequestId();
        context.ReadRecord(_readId);
        return this;
    }

    public override CampaignStep OnTick() => context.NowUs >= ResendUs ? Begin() : this;

    /// <summary>The record was read. The id tells whether this step asked for it.</summary>
    public CampaignStep OnRecordRead(long readId, ShardRecord? record)
    {
        if (readId != _readId)
            return this;
        if (record is null)
        {
            ResendUs = context.NowUs + context.Options.CoordinatorRetryUs;
            return this;
        }

        // Only this process can have put this epoch with its incarnation, so such a record is this campaign's own.
        return record.Epoch == epoch && record.Leader == context.Self && record.LeaderIncarnation == context.Incarnation
            ? WonEpoch.Of(context, epoch, voters)
            : new Abandoned("another writer changed the record first");
    }
}
