using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// The first step of a campaign: reading the shard's record afresh, before anyone is asked, because a replica without a coordinator must not delay the others'
/// timers. A pre-vote follows or, if it is waived, the claim of the epoch.
/// </summary>
/// <param name="context">The replica.</param>
/// <param name="number">The number of this campaign.</param>
/// <param name="isWaived">Whether there is no pre-vote.</param>
internal sealed class FreshRead(ReplicaContext context, ulong number, bool isWaived)
    : CampaignStep(CampaignPhase.Reading, context.NowUs + (2 * context.Options.TimeoutMaxUs))
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
