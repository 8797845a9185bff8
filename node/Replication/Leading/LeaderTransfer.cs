using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;
using KvCluster.V1;

namespace KvCluster.Replication.Leading;

/// <summary>The steps of handing a leadership over, in their order.</summary>
internal enum TransferPhase
{
    /// <summary>The target is asked to read the shard's record, and to come close to the end of the journal. Reads and writes go on.</summary>
    Asking,

    /// <summary>Nothing is served any more in this epoch; what was appended becomes committed, and the target gets all of it.</summary>
    Draining,

    /// <summary>The grants are released and the target was told to stand.</summary>
    Released,
}

/// <summary>
/// A leader's side of handing over to a replica that it names. Until <see cref="TransferPhase.Draining"/> giving up costs nothing; after it the
/// epoch serves no more, whatever becomes of the target. The target's side is an ordinary election without pre-vote, see <c>Election</c>.
/// </summary>
internal sealed class LeaderTransfer(ReplicaContext context, ulong epoch, long id, FollowerProgress target)
{
    private long _resendUs = context.NowUs;
    private bool _ready;

    public ulong Target => target.Replica;

    public TransferPhase Phase { get; private set; }

    /// <summary>Reads and writes have ended for good in this epoch.</summary>
    public bool StoppedServing => Phase != TransferPhase.Asking;

    /// <summary>When the target must have come close, or have taken over.</summary>
    public long DeadlineUs { get; private set; } = context.NowUs + context.Options.TimeoutGreatestUs;

    /// <summary>When something is to be done by the clock.</summary>
    public long DueUs => Math.Min(DeadlineUs, Phase == TransferPhase.Draining ? long.MaxValue : _resendUs);

    /// <summary>The target has read the record.</summary>
    public void OnReady(ulong replica) => _ready |= replica == Target;

    /// <summary>Whether serving can end now: the target is ready and lacks little, so the pause will be short.</summary>
    public bool MayStopServing => Phase == TransferPhase.Asking
        && _ready
        && target.State == FollowerState.Replicate
        && target.OutstandingBytes <= context.Options.FrameBytes;

    /// <summary>Serving has ended.</summary>
    public void Drain()
    {
        Phase = TransferPhase.Draining;
        DeadlineUs = context.NowUs + context.Options.TimeoutGreatestUs;
        _resendUs = context.NowUs;
    }

    /// <summary>Sends what is due.</summary>
    /// <param name="round">The newest round of heartbeats: no grant of this epoch has a greater number.</param>
    /// <param name="followers">All other replicas.</param>
    public void Advance(ulong round, IEnumerable<FollowerProgress> followers)
    {
        var last = context.Journal.Last.Etag;
        if (Phase == TransferPhase.Draining && context.Committed >= last && target.Acked >= last)
        {
            Phase = TransferPhase.Released;
            context.Log($"hands epoch {epoch} over to replica {Target:x}");
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

    /// <summary>Tells who asked how it ended.</summary>
    /// <param name="successor">The leader of the epoch that ended this one; 0: none.</param>
    public void End(ulong successor, string reason) => context.Emit(new Effect.OrderEnded(id, successor == Target, reason));
}
