using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.Elections;

/// <summary>The steps of a campaign, in their order. Only a fetch goes back, to <see cref="Preparing"/>.</summary>
internal enum CampaignPhase
{
    /// <summary>Reading the shard's record afresh.</summary>
    Reading,

    /// <summary>Pre-vote: asking the voters whether they heard a leader.</summary>
    Asking,

    /// <summary>The compare-and-set is sent, and its outcome is not certain.</summary>
    Setting,

    /// <summary>The epoch is won, but this replica's grant to an older leader still runs.</summary>
    Waiting,

    /// <summary>Collecting promises.</summary>
    Preparing,

    /// <summary>Fetching the greatest tail among the prepared replicas.</summary>
    Fetching,

    /// <summary>Given up, or ready to lead.</summary>
    Ended,
}

/// <summary>
/// One step of a campaign, with only what is valid in it. What happens to a step returns the step that follows: itself, a later one, or how the campaign ended.
/// <see cref="Election"/> holds the present one and calls it, within the core's steps.
/// </summary>
internal abstract class CampaignStep(CampaignPhase phase, long deadlineUs)
{
    public CampaignPhase Phase { get; } = phase;

    /// <summary>When the campaign is given up.</summary>
    public long DeadlineUs { get; } = deadlineUs;

    /// <summary>The epoch that this replica has won; 0 before.</summary>
    public virtual ulong Epoch => 0;

    /// <summary>Whether a campaign in this step ends when the promised leader is heard.</summary>
    public virtual bool YieldsToLeader => false;

    /// <summary>The next time at which something is due by the clock.</summary>
    public virtual long DueUs => Math.Min(DeadlineUs, ResendUs);

    /// <summary>When what was sent last is sent again.</summary>
    protected long ResendUs { get; set; } = long.MaxValue;

    /// <summary>Does what is due by the clock, except giving up.</summary>
    public virtual CampaignStep OnTick() => this;
}

/// <summary>The campaign was given up. The next one has a new pre-vote and a new epoch.</summary>
/// <param name="why">The reason.</param>
/// <param name="laterUs">How much later than usual the next one begins.</param>
internal sealed class Abandoned(string why, long laterUs = 0) : CampaignStep(CampaignPhase.Ended, long.MaxValue)
{
    public string Why { get; } = why;

    public long LaterUs { get; } = laterUs;
}

/// <summary>The epoch is prepared and the greatest tail is here.</summary>
/// <param name="epoch">The epoch to lead.</param>
/// <param name="voters">Its voters.</param>
internal sealed class ReadyToLead(ulong epoch, Quorum voters) : CampaignStep(CampaignPhase.Ended, long.MaxValue)
{
    public override ulong Epoch { get; } = epoch;

    public Quorum Voters { get; } = voters;
}
