using KvCluster.Replication.Progress;
using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// To whom a leader transfers, and when: on an order, or because its own disk is impaired or its tree doubted. Has the one <see cref="LeaderTransfer"/> in
/// progress. One per epoch; called within the core's steps.
/// </summary>
internal sealed class Succession(ReplicaContext context, ulong epoch, ProgressTracker tracker, Heartbeats heartbeats)
{
    private LeaderTransfer? _transfer;
    private long _leaveDueUs;

    /// <summary>A transfer has begun. It may still fail, and this replica then continues to lead.</summary>
    public bool IsTransferring => _transfer is not null;

    /// <summary>The target was told to campaign; a heartbeat would stop it.</summary>
    public bool IsReleased => _transfer is { Phase: TransferPhase.Released };

    /// <summary>The next time at which something is due by the clock.</summary>
    public long DueUs => _transfer?.DueUs ?? long.MaxValue;

    /// <summary>Begins an ordered transfer. Answered by one <see cref="Effect.OrderEnded"/>, at once if it cannot begin.</summary>
    /// <param name="orderId">Names the request.</param>
    /// <param name="replica">The replica that should lead; 0: the most advanced voter.</param>
    public void Begin(long orderId, ReplicaId replica)
    {
        if (Choose(replica) is not { } target)
        {
            context.Emit(new Effect.OrderEnded(
                orderId, false, replica.IsNone ? "no other voter follows closely" : $"replica {replica} is not a voter that follows closely"));
            return;
        }

        context.Log($"asks replica {target.Replica} to take over");
        Begin(orderId, target);
    }

    /// <summary>
    /// Begins a transfer if this replica's disk is impaired or its tree doubted, and a follower qualifies to which neither applies. Nobody ordered it, so
    /// nobody waits for its end.
    /// </summary>
    public void LeaveImpaired()
    {
        if (context.NowUs < _leaveDueUs || Choose(ReplicaId.None) is not { } target)
            return;
        heartbeats.Asked();
        _leaveDueUs = context.NowUs + context.Options.TimeoutMaxUs;
        context.Log($"its {(context.TreeDoubted ? "tree is doubted" : "disk is slow or full")}: asks replica {target.Replica} to take over");
        Begin(0, target);
    }

    /// <summary>The target has read the shard's record.</summary>
    public void OnReady(ReplicaId replica) => _transfer?.OnReady(replica);

    /// <summary>Gives up what takes too long. A non-null reason means that this leadership is over.</summary>
    public string? OnTick()
    {
        if (_transfer is null || context.NowUs < _transfer.DeadlineUs)
            return null;
        if (_transfer.StoppedServing)
            return $"replica {_transfer.Target} did not take over";
        _transfer.End(ReplicaId.None, $"replica {_transfer.Target} did not become ready; this replica continues to lead");
        _transfer = null;
        return null;
    }

    /// <summary>Whether serving must end now, so that the target can receive the rest.</summary>
    public bool TryDrain()
    {
        if (_transfer is not { MayStopServing: true })
            return false;
        _transfer.Drain();
        return true;
    }

    /// <summary>Sends the messages that are due.</summary>
    /// <param name="round">The newest heartbeat round.</param>
    public void Advance(ulong round) => _transfer?.Advance(round, tracker.All);

    /// <summary>The leadership ends.</summary>
    /// <param name="successor">The leader of the epoch that ended this one; 0: none.</param>
    /// <param name="reason">The reason.</param>
    public void End(ReplicaId successor, string reason) => _transfer?.End(successor, reason);

    private void Begin(long orderId, FollowerProgress target)
    {
        Invariant.Check(_transfer is null, $"A transfer to replica {target.Replica} begins while one to replica {_transfer?.Target} is in progress.");
        _transfer = new LeaderTransfer(context, epoch, orderId, target);
    }

    // A replicating voter heard from recently. Of these, the one with the most acknowledged; if this leader's disk is slow, the fastest one. A replica with an
    // impaired disk, or about as slow as this slow leader, is chosen only if it was named.
    private FollowerProgress? Choose(ReplicaId replica)
    {
        var candidates = tracker.All.Where(follower => (replica.IsNone || follower.Replica == replica)
            && tracker.Voters.Contains(follower.Replica)
            && follower.State == FollowerState.Replicate
            && (!replica.IsNone || (!follower.DiskImpaired && !IsAsSlow(follower)))
            && heartbeats.Quiescence.HeardLately(follower));
        return context.Pace.IsSlow ? candidates.MinBy(follower => follower.AckUs == 0 ? long.MaxValue : follower.AckUs)
            : candidates.MaxBy(follower => follower.Acked);
    }

    private bool IsAsSlow(FollowerProgress follower) => context.Pace is { IsSlow: true, OwnUs: var ownUs } && follower.AckUs > ownUs / 2;
}
