using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>
/// Fetching the greatest tail among the prepared replicas, from the last common record on. What this replica has beyond that record is truncated first. Whose
/// tail it is was decided in <see cref="PrepareRound"/>, which decides anew without a source that does not answer.
/// </summary>
/// <param name="context">The replica.</param>
/// <param name="truncation">Its truncations.</param>
/// <param name="won">The epoch.</param>
/// <param name="round">The promises, to which the campaign returns without the source.</param>
/// <param name="source">The replica that has the tail.</param>
/// <param name="greatest">Where the tail ends.</param>
internal sealed class TailFetch(ReplicaContext context, TailTruncation truncation, WonEpoch won, PrepareRound round, ReplicaId source, LogPosition greatest)
    : CampaignStep(CampaignPhase.Fetching, won.DeadlineUs)
{
    private LogPosition _after = context.Journal.Last.Name;
    private long _sourceDeadlineUs = context.NowUs + context.Options.TimeoutMinUs;

    public override ulong Epoch => won.Epoch;

    public override long DueUs => Math.Min(base.DueUs, _sourceDeadlineUs);

    public TailFetch Begin()
    {
        ResendUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        var frame = context.FrameTo(source, Epoch);
        frame.FetchTail = new FetchTail { After = _after.ToWire() };
        context.Send(frame);
        return this;
    }

    public override CampaignStep OnTick()
    {
        if (context.NowUs >= _sourceDeadlineUs)
            return round.Without(source, "did not answer");
        if (context.NowUs < ResendUs)
            return this;
        if (!truncation.Busy)
            return Begin();
        ResendUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        return this;
    }

    public CampaignStep OnTail(Frame frame)
    {
        if (frame.Epoch != Epoch || frame.SenderId != source || truncation.Busy)
            return this;
        _sourceDeadlineUs = context.NowUs + context.Options.TimeoutMinUs;
        var tail = frame.Tail;
        if (tail.Gone)
            return Yield("no longer has the records in between");
        var after = tail.After.FromWire();
        return !tail.Found ? StepBack(after) : after == _after ? Take(tail) : this;
    }

    /// <summary>The truncation is done. The fetch continues from the record kept.</summary>
    public void OnTruncated(LogPosition kept)
    {
        _after = kept;
        Begin();
    }

    private CampaignStep StepBack(LogPosition hint)
    {
        if (!TailMatch.TryStepBack(context.Journal, _after, hint, out var next, out _))
            return new Abandoned("this replica's journal does not reach back to the greatest tail");
        _after = next;
        return Begin();
    }

    private CampaignStep Take(Tail tail)
    {
        var match = TailMatch.Of(context.Journal, _after, tail.Bodies, Epoch - 1);
        if (match.Fit == TailFit.Conflict)
            return truncation.TryBegin(match.Common, Epoch) ? this : new Abandoned("this replica's journal cannot be truncated");
        if (match.Fit != TailFit.Fits || tail.Bodies.Count == 0)
            return Yield("sent a tail that is damaged or ends early");
        if (match.New.Count > 0)
            context.Append(match);
        _after = match.End;
        return match.End.Etag >= greatest.Etag ? new ReadyToLead(Epoch, won.Voters) : Begin();
    }

    // The source has what this replica lacks, in its tree if not in its journal, so it can lead and then send a snapshot. Asking it again would restart the
    // timers of just those replicas that have the tail, so that only replicas without it would ever campaign. This replica's timer is set to fire after all of
    // theirs, in case the source is not reached or cannot campaign.
    private Abandoned Yield(string why)
    {
        var frame = context.FrameTo(source, Epoch);
        frame.Release = new Release { Stand = true };
        context.Send(frame);
        return new Abandoned($"replica {source} {why} and should campaign itself", laterUs: context.Options.TimeoutMaxUs);
    }
}
