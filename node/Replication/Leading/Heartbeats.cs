using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// A leader's heartbeats: when a round is due, what it says, and what its answers grant. One per epoch; called within the core's steps.
/// </summary>
internal sealed class Heartbeats
{
    private readonly ReplicaContext _context;
    private readonly ReadRounds _rounds;
    private readonly ProgressTracker _tracker;
    private readonly JournalShipping _shipping;
    private readonly Quiescence _quiescence;

    // The followers that the newest round asked if it did not ask all.
    private readonly HashSet<ReplicaId> _few = [];
    private readonly Func<ReplicaId, bool> _isAsked;
    private bool _isRoundAwaited;
    private long _intervalDueUs;

    // When all are asked if the few have not answered by then; the greatest value if all were asked.
    private long _fewDueUs = long.MaxValue;

    public Heartbeats(ReplicaContext context, ReadRounds rounds, ProgressTracker tracker, JournalShipping shipping)
    {
        (_context, _rounds, _tracker, _shipping) = (context, rounds, tracker, shipping);
        _quiescence = new Quiescence(context);
        _isAsked = replica => replica == context.Self || _few.Contains(replica);
    }

    /// <summary>Whether the leader is quiescent, and which followers it has heard.</summary>
    public Quiescence Quiescence => _quiescence;

    /// <summary>
    /// When the next round is due by the clock: at the end of the interval, or before, if the few that the newest one asked have not answered it.
    /// </summary>
    public long DueUs => _fewDueUs < _intervalDueUs && _tracker.Round < _rounds.Newest ? _fewDueUs : _intervalDueUs;

    /// <summary>When the followers are checked next. Independent of the rounds, which reads may cause indefinitely.</summary>
    public long CheckDueUs { get; private set; }

    /// <summary>
    /// A read waits for a round, and none that was sent for others is still being answered. Followers do not hurry to answer a round that was not awaited.
    /// </summary>
    public bool IsRoundWanted => _rounds.Wanted && (!_isRoundAwaited || _tracker.Round == _rounds.Newest);

    // All leaders of a node send heartbeats at the same moments, so that these travel in one message. If there are many, each sends at some of them.
    private long NextUs => _quiescence.IsQuiescent
        ? SharedIntervals.NextUs(_context.NowUs, _context.Options.QuiescentIntervalUs, every: 1, _context.Shard)
        : SharedIntervals.NextUs(_context.NowUs, _context.Options.HeartbeatIntervalUs, _context.HeartbeatsEvery, _context.Shard);

    // How much longer than others a leader waits whose node has many.
    private long SpacedUs => (_context.HeartbeatsEvery - 1) * _context.Options.HeartbeatIntervalUs;

    /// <summary>Something was asked of the leader, a replica wants to campaign, or a node, perhaps a follower's, is silent. Ends quiescence.</summary>
    public void Asked()
    {
        if (_quiescence.TryEnd())
            _intervalDueUs = CheckDueUs = _context.NowUs;
    }

    /// <summary>Whether the followers are to be checked now.</summary>
    public bool TryCheck()
    {
        if (_context.NowUs < CheckDueUs)
            return false;
        CheckDueUs = NextUs;
        return true;
    }

    /// <summary>Whether no majority has answered for so long that this leadership is over.</summary>
    public bool IsAlone => !_quiescence.IsQuiescent && _context.NowUs - _quiescence.HeardUs(_tracker.HeardUs) > _context.Options.TimeoutMaxUs * 3 / 2;

    /// <summary>
    /// Sends a round. One that is only for reads, and not due by the clock, goes to no more followers than make a majority, if as many have answered the round
    /// before: under many reads rounds follow each other at once, and the answers of the others would be of no use.
    /// </summary>
    /// <param name="isIdle">Nothing that the leader has begun is in progress.</param>
    /// <param name="leaseEndUs">When the lease ends.</param>
    public void Send(bool isIdle, long leaseEndUs)
    {
        var isForReads = _rounds.Wanted && _context.NowUs < DueUs;
        _quiescence.Decide(isIdle && !_rounds.Wanted, _tracker.All);
        var isQuiescent = _quiescence.IsQuiescent;
        _isRoundAwaited = !isQuiescent && (_rounds.Wanted || leaseEndUs <= _context.NowUs);
        var isForFew = isForReads && !isQuiescent && TryChooseFew();
        if (!isForFew)
            _intervalDueUs = NextUs;
        _fewDueUs = isForFew ? _context.NowUs + _context.Options.FewAnswerUs : long.MaxValue;
        var round = _rounds.Start(_context.NowUs);
        var shardTimeUs = _context.Journal.ShardTimeUs;
        foreach (var follower in _tracker.All)
        {
            if (isForFew && !_few.Contains(follower.Replica))
                continue;
            var frame = _shipping.FrameTo(follower);
            frame.Heartbeat = new Heartbeat
            {
                Round = round,
                Committed = _context.Committed.ToWire(),
                LeaseUs = isQuiescent ? 0 : (ulong)_context.Options.LeaseUs,
                Awaited = _isRoundAwaited,
                RestUs = (ulong)(isQuiescent ? _context.Options.QuiescentIntervalUs : SpacedUs),
                PaceUs = (ulong)_context.Pace.PaceUs(_context.NowUs),
                ShardTimeUs = shardTimeUs,
            };
            _context.Send(frame);
        }
    }

    /// <summary>A follower answered a round. A lease counts from the send of the round that it answers.</summary>
    public void OnAck(FollowerProgress follower, HeartbeatAck ack)
    {
        follower.DiskImpaired = ack.DiskImpaired;
        if (ack.Recovering || !_rounds.TryGetSentUs(ack.Round, out var sentUs))
            return;
        Invariant.Check(sentUs <= _context.NowUs, $"Round {ack.Round} was sent at {sentUs}, which is later than {_context.NowUs}.");
        follower.Round = Math.Max(follower.Round, ack.Round);
        if (ack.Granted)
            follower.GrantEndUs = Math.Max(follower.GrantEndUs, sentUs + _context.Options.LeaseUs);
    }

    private bool TryChooseFew()
    {
        _few.Clear();
        foreach (var follower in _tracker.All)
        {
            if (follower.Round < _rounds.Newest || !_tracker.Voters.Contains(follower.Replica))
                continue;
            _few.Add(follower.Replica);
            if (_tracker.Voters.Reached(_isAsked))
                return true;
        }
        return false;
    }
}
