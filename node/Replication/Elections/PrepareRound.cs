using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Elections;

/// <summary>The epoch is won, but this replica's grant to an older leader may still run.</summary>
internal sealed class WonEpoch(ulong epoch, Quorum voters, long deadlineUs) : CampaignStep(CampaignPhase.Waiting, deadlineUs)
{
    public override ulong Epoch { get; } = epoch;

    /// <summary>A majority of these must prepare the epoch.</summary>
    public Quorum Voters { get; } = voters;

    /// <summary>The epoch is this replica's, unless it has promised a higher one meanwhile.</summary>
    public static CampaignStep Of(ReplicaContext context, ulong epoch, Quorum voters)
    {
        if (epoch <= context.Promised)
            return new Abandoned($"won epoch {epoch}, but epoch {context.Promised} is promised");
        context.Log($"won epoch {epoch}");
        return new WonEpoch(epoch, voters, context.NowUs + (2 * context.Options.TimeoutMaxUs));
    }
}

/// <summary>Collecting promises. With those of a majority the greatest tail among them is chosen, because everything committed is in it.</summary>
internal sealed class PrepareRound(ReplicaContext context, TailTruncation truncation, WonEpoch won) : CampaignStep(CampaignPhase.Preparing, won.DeadlineUs)
{
    // Where the durable journal of each replica ended when its promise was synced. It acknowledges nothing of a lower epoch since (R2).
    private readonly Dictionary<ReplicaId, LogPosition> _prepared = [];

    public override ulong Epoch => won.Epoch;

    public PrepareRound Begin()
    {
        ResendUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        foreach (var replica in context.View.Record.Replicas)
        {
            if (replica.ReplicaId == context.Self || _prepared.ContainsKey(replica.ReplicaId))
                continue;
            var frame = context.FrameTo(replica.ReplicaId, Epoch);
            frame.Prepare = new Prepare();
            context.Send(frame);
        }

        return this;
    }

    public override CampaignStep OnTick() => context.NowUs >= ResendUs ? Begin() : this;

    public void OnPrepared(Frame frame)
    {
        if (frame.Epoch == Epoch)
            _prepared[frame.SenderId] = frame.Prepared.Last.FromWire();
    }

    /// <summary>This replica's own promise may be synced, and a majority may be prepared. The journal is not being changed.</summary>
    public CampaignStep Advance()
    {
        if (context.Control.PromiseSynced && context.Counts)
            _prepared[context.Self] = context.Journal.Durable.Name;
        return _prepared.ContainsKey(context.Self) && won.Voters.Reached(_prepared.ContainsKey) ? ChooseTail() : this;
    }

    /// <summary>A prepared replica did not send its tail, so a majority is needed again.</summary>
    public PrepareRound Without(ReplicaId source, string why)
    {
        context.Log($"replica {source} {why}; a majority is needed again");
        _prepared.Remove(source);
        return Begin();
    }

    private CampaignStep ChooseTail()
    {
        var (source, greatest) = (context.Self, _prepared[context.Self]);
        foreach (var (replica, last) in _prepared)
        {
            if (won.Voters.Contains(replica) && last.Etag > greatest.Etag)
                (source, greatest) = (replica, last);
        }

        // This is not asserted, because others tell it, and one of them may have lost a tail that its control file does not show. This replica's journal has
        // what is committed.
        if (context.Journal.Last.Etag >= greatest.Etag)
            return new ReadyToLead(Epoch, won.Voters);
        context.Log($"fetching the tail up to {greatest} from replica {source}; this replica's journal ends at {context.Journal.Last.Name}");
        return new TailFetch(context, truncation, won, this, source, greatest).Begin();
    }
}
