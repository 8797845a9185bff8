using KvCluster.Internal.V1;
using KvCluster.Replication.Log;
using KvCluster.Replication.Progress;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// A leader's answers to followers that ask for the committed etag, for linearizable reads there. They get the same check as the leader's own reads: the lease
/// when they ask, or a round that is sent from then on. One per epoch; called within the core's steps.
/// </summary>
internal sealed class ReadIndexes(ReplicaContext context, ReadRounds rounds, ProgressTracker tracker, JournalShipping shipping)
{
    /// <summary>A follower asks.</summary>
    /// <param name="follower">Who.</param>
    /// <param name="number">The number of its request.</param>
    /// <param name="leaseEndUs">When the leader's lease ends.</param>
    public void Add(FollowerProgress follower, ulong number, long leaseEndUs)
    {
        if (number > follower.ReadIndexAsked)
            follower.ReadIndexRound = context.NowUs < leaseEndUs ? 0 : rounds.Next();
        follower.ReadIndexAsked = Math.Max(follower.ReadIndexAsked, number);
    }

    /// <summary>Answers those whose round a majority has answered.</summary>
    public void Answer()
    {
        foreach (var follower in tracker.All)
        {
            if (follower.ReadIndexAsked == 0 || tracker.Round < follower.ReadIndexRound)
                continue;
            var frame = shipping.FrameTo(follower);
            frame.ReadIndexAnswer = new ReadIndexAnswer { Number = follower.ReadIndexAsked, Committed = context.Committed.ToWire() };
            context.Send(frame);
            follower.ReadIndexAsked = 0;
        }
    }
}
