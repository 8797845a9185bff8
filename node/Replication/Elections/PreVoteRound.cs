using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// The second step of a campaign, the pre-vote: asking the voters whether they heard a leader. When a majority has not, the epoch is claimed.
/// </summary>
internal sealed class PreVoteRound(ReplicaContext context, ulong number, ShardRecord record, long revision)
    : CampaignStep(CampaignPhase.Asking, context.NowUs + (context.CampaignsFirst ? context.Options.HeartbeatIntervalUs : context.Options.TimeoutMinUs / 2))
{
    private readonly Quorum _voters = ShardView.VotersOf(record);
    private readonly HashSet<ReplicaId> _granted = [context.Self];

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
            _granted.Add(frame.SenderId);
        return ClaimIfAgreed();
    }

    private CampaignStep ClaimIfAgreed() => _voters.Reached(_granted.Contains) ? new EpochClaim(context, record, revision).Begin() : this;
}
