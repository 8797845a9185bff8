using KvCluster.Replication.Progress;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// Whether a leader is quiescent: nothing was asked of it for some time and all replicas have everything, so it sends few heartbeats and has no lease. One per
/// epoch; called within the core's steps.
/// </summary>
internal sealed class Quiescence(ReplicaContext context)
{
    private long _askedUs;

    public bool IsQuiescent { get; private set; }

    /// <summary>When quiescence last ended, or when the epoch began.</summary>
    public long EndedUs { get; private set; }

    /// <summary>Time before the end of quiescence does not count as silence.</summary>
    public long HeardUs(long heardUs) => Math.Max(EndedUs, heardUs);

    /// <summary>Whether the follower was heard within the shortest timeout, or quiescence ended that recently.</summary>
    public bool HeardLately(FollowerProgress follower) => context.NowUs - HeardUs(follower.HeardUs) < context.Options.TimeoutMinUs;

    /// <summary>Whether the follower was heard lately, or need not have been, because the leader is quiescent.</summary>
    public bool MayBeAlive(FollowerProgress follower) => IsQuiescent || HeardLately(follower);

    /// <summary>The epoch begins.</summary>
    public void Begin() => EndedUs = context.NowUs;

    /// <summary>Something was asked of the leader. True if that ends quiescence.</summary>
    public bool TryEnd()
    {
        _askedUs = context.NowUs;
        if (!IsQuiescent)
            return false;
        IsQuiescent = false;
        EndedUs = context.NowUs;
        return true;
    }

    /// <summary>Decides anew, with each round of heartbeats.</summary>
    /// <param name="isIdle">Nothing that the leader has begun is in progress.</param>
    /// <param name="followers">All other replicas.</param>
    public void Decide(bool isIdle, IEnumerable<FollowerProgress> followers)
    {
        // All replicas have everything, and as long as nobody asks for anything none of them has to be told anything.
        var last = context.Journal.Last.Etag;
        IsQuiescent = isIdle
            && context.Options.QuiescentIntervalUs > 0
            && context.NowUs - _askedUs >= context.Options.QuiescentAfterUs
            && context.Committed == last
            && followers.All(follower => follower.State == FollowerState.Replicate && follower.Acked == last && MayBeAlive(follower));
    }
}
