using KvCluster.Internal.V1;
using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>The steps of a transfer, in their order.</summary>
internal enum TransferPhase
{
    /// <summary>The target is asked to read the shard's record and to come close to the end of the journal. Reads and writes continue.</summary>
    Asking,

    /// <summary>Nothing is served any more in this epoch. What was appended becomes committed, and the target receives all of it.</summary>
    Draining,

    /// <summary>The grants are released and the target was told to campaign.</summary>
    Released,
}

/// <summary>
/// A leader's side of a transfer to a chosen replica. Before <see cref="TransferPhase.Draining"/> a transfer can be given up at no cost. After it the
/// epoch no longer serves, whatever happens to the target. The target's side is an ordinary election without a pre-vote, see <c>Election</c>.
/// </summary>
internal sealed class LeaderTransfer(ReplicaContext context, ulong epoch, long id, FollowerProgress target)
{
    private long _resendUs = context.NowUs;
    private bool _ready;

    public ReplicaId Target => target.Replica;

    public TransferPhase Phase { get; private set; }

    /// <summary>Reads and writes have ended for good in this epoch.</summary>
    public bool StoppedServing => Phase != TransferPhase.Asking;

    /// <summary>When the target must have caught up or, after serving has ended, taken over.</summary>
    public long DeadlineUs { get; private set; } = context.NowUs + context.Options.TimeoutMaxUs;

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => Math.Min(DeadlineUs, Phase == TransferPhase.Draining ? long.MaxValue : _resendUs);

    /// <summary>The target has read the record.</summary>
    public void OnReady(ReplicaId replica) => _ready |= replica == Target;

    /// <summary>Whether serving can end now. The target is ready and lacks little, so the pause will be short.</summary>
    public bool MayStopServing => Phase == TransferPhase.Asking && _ready && target.FollowsClosely(context);

    /// <summary>Serving has ended.</summary>
    public void Drain()
    {
        Invariant.Check(Phase == TransferPhase.Asking, $"Serving ends for replica {Target} in phase {Phase}.");
        Phase = TransferPhase.Draining;
        DeadlineUs = context.NowUs + context.Options.TimeoutMaxUs;
        _resendUs = context.NowUs;
    }

    /// <summary>Sends the messages that are due.</summary>
    /// <param name="round">The newest heartbeat round. No grant of this epoch has a greater number.</param>
    /// <param name="followers">All other replicas.</param>
    public void Advance(ulong round, IEnumerable<FollowerProgress> followers)
    {
        var last = context.Journal.Last.Etag;
        if (Phase == TransferPhase.Draining && context.Committed >= last && target.Acked >= last)
        {
            Phase = TransferPhase.Released;
            context.Log($"transfers the leadership of epoch {epoch} to replica {Target}");
        }

        if (Phase == TransferPhase.Draining || context.NowUs < _resendUs)
            return;
        _resendUs = context.NowUs + context.Options.HeartbeatIntervalUs;
        if (Phase == TransferPhase.Asking)
        {
            if (_ready)
                return;
            var ask = context.FrameTo(Target, epoch);
            ask.TransferAsk = new TransferAsk();
            context.Send(ask);
            return;
        }

        foreach (var follower in followers)
        {
            var frame = context.FrameTo(follower.Replica, epoch);
            frame.Release = new Release { Round = round, Stand = follower.Replica == Target };
            context.Send(frame);
        }
    }

    /// <summary>Reports the end to whoever ordered the transfer.</summary>
    /// <param name="successor">The leader of the epoch that ended this one; 0: none.</param>
    public void End(ReplicaId successor, string reason) => context.Emit(new Effect.OrderEnded(id, successor == Target, reason));
}
