using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// The third step of a campaign: the compare-and-set that assigns the next epoch to this process. Only a voter of the record that it compares may campaign, and
/// that record's voters are the epoch's quorum.
/// </summary>
internal sealed class EpochClaim : CampaignStep
{
    private readonly ReplicaContext _context;
    private readonly ShardRecord _put;
    private readonly Quorum _voters;
    private readonly ShardRecordChange _set;

    /// <param name="context">The replica.</param>
    /// <param name="read">The record as it was read.</param>
    /// <param name="revision">Its mod revision.</param>
    public EpochClaim(ReplicaContext context, ShardRecord read, long revision)
        : base(CampaignPhase.Setting, context.NowUs + (2 * context.Options.TimeoutMaxUs))
    {
        _context = context;
        _voters = ShardView.VotersOf(read);
        _put = read.Clone();
        _put.Epoch = Math.Max(Math.Max(read.Epoch, read.EpochFloor), Math.Max(context.EpochSeen, context.Promised)) + 1;
        _put.LeaderId = context.Self;
        _put.LeaderIncarnation = context.Incarnation;
        _set = new ShardRecordChange(context, _put, revision, IsPut);
    }

    /// <summary>
    /// While an attempt without an answer is repeated, the epoch may never become this replica's, so a leader that is heard is followed. The read that settles
    /// the outcome is awaited.
    /// </summary>
    public override bool YieldsToLeader => _set is { IsInDoubt: true, IsSettling: false };

    public override long DueUs => Math.Min(DeadlineUs, _set.DueUs);

    public EpochClaim Begin()
    {
        _set.Send();
        return this;
    }

    public override CampaignStep OnTick() => _context.NowUs >= _set.DueUs ? Begin() : this;

    /// <summary>A compare-and-set ended. The id tells whether it is this claim's.</summary>
    public CampaignStep OnSetDone(long setId, SetOutcome outcome) => Conclude(_set.OnSetDone(setId, outcome));

    /// <summary>The record was read. The id tells whether this claim asked for it.</summary>
    public CampaignStep OnRecordRead(long readId, ShardRecord? record) => Conclude(_set.OnRecordRead(readId, record));

    private CampaignStep Conclude(SetOutcome outcome) => outcome switch
    {
        SetOutcome.Won => WonEpoch.Of(_context, _put.Epoch, _voters),
        SetOutcome.Lost => new Abandoned("another writer changed the record first"),
        _ => this,
    };

    // Only this process can have put this epoch with its incarnation, so such a record is this campaign's own.
    private bool? IsPut(ShardRecord record) =>
        record.Epoch == _put.Epoch && record.LeaderId == _context.Self && record.LeaderIncarnation == _context.Incarnation;
}
