using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// A leader's heartbeats: when a round is due, what it says, and what its answers grant. One per epoch; called within the core's steps.
/// </summary>
internal sealed class Heartbeats(ReplicaContext context, ReadRounds rounds, ProgressTracker tracker, JournalShipping shipping)
{
    private readonly Quiescence _quiescence = new(context);
    private bool _isRoundAwaited;

    /// <summary>Whether the leader is quiescent, and which followers it has heard.</summary>
    public Quiescence Quiescence => _quiescence;

    /// <summary>When the next round is due by the clock.</summary>
    public long DueUs { get; private set; }

    /// <summary>When the followers are checked next. Independent of the rounds, which reads may cause indefinitely.</summary>
    public long CheckDueUs { get; private set; }

    /// <summary>A read waits for a round, and none that was sent for others is still being answered. Followers do not hurry to answer a round that was not awaited.</summary>
    public bool IsRoundWanted => rounds.Wanted && (!_isRoundAwaited || tracker.Round == rounds.Newest);

    // All leaders of a node send heartbeats at the same moments, so that these travel in one message.
    private long NextUs => ((context.NowUs / IntervalUs) + 1) * IntervalUs;

    private long IntervalUs => _quiescence.IsQuiescent ? context.Options.QuiescentIntervalUs : context.Options.HeartbeatIntervalUs;

    /// <summary>Something was asked of the leader, a replica wants to campaign, or a node, perhaps a follower's, is silent. Ends quiescence.</summary>
    public void Asked()
    {
        if (_quiescence.TryEnd())
            DueUs = CheckDueUs = context.NowUs;
    }

    /// <summary>Whether the followers are to be checked now.</summary>
    public bool TryCheck()
    {
        if (context.NowUs < CheckDueUs)
            return false;
        CheckDueUs = NextUs;
        return true;
    }

    /// <summary>Whether no majority has answered for so long that this leadership is over.</summary>
    public bool IsAlone => !_quiescence.IsQuiescent && context.NowUs - _quiescence.HeardUs(tracker.HeardUs) > context.Options.TimeoutMaxUs * 3 / 2;

    /// <summary>Sends a round.</summary>
    /// <param name="isIdle">Nothing that the leader has begun is in progress.</param>
    /// <param name="leaseEndUs">When the lease ends.</param>
    public void Send(bool isIdle, long leaseEndUs)
    {
        _quiescence.Decide(isIdle && !rounds.Wanted, tracker.All);
        var isQuiescent = _quiescence.IsQuiescent;
        DueUs = NextUs;
        _isRoundAwaited = !isQuiescent && (rounds.Wanted || leaseEndUs <= context.NowUs);
        var round = rounds.Start(context.NowUs);
        foreach (var follower in tracker.All)
        {
            var frame = shipping.FrameTo(follower);
            frame.Heartbeat = new Heartbeat
            {
                Round = round,
                Committed = context.Committed.ToWire(),
                LeaseUs = isQuiescent ? 0 : (ulong)context.Options.LeaseUs,
                Awaited = _isRoundAwaited,
                RestUs = isQuiescent ? (ulong)context.Options.QuiescentIntervalUs : 0,
                PaceUs = (ulong)context.Pace.PaceUs(context.NowUs),
            };
            context.Send(frame);
        }
    }

    /// <summary>A follower answered a round. A lease counts from the send of the round that it answers.</summary>
    public void OnAck(FollowerProgress follower, HeartbeatAck ack)
    {
        follower.DiskImpaired = ack.DiskImpaired;
        if (ack.Recovering || !rounds.TryGetSentUs(ack.Round, out var sentUs))
            return;
        Invariant.Check(sentUs <= context.NowUs, $"Round {ack.Round} was sent at {sentUs}, which is later than {context.NowUs}.");
        follower.Round = Math.Max(follower.Round, ack.Round);
        if (ack.Granted)
            follower.GrantEndUs = Math.Max(follower.GrantEndUs, sentUs + context.Options.LeaseUs);
    }
}
