using KvCluster.Replication.Log;
using KvCluster.Replication.State;

namespace KvCluster.Replication.Leading;

/// <summary>
/// Decides what is committed while this replica leads an epoch: what a majority of the voters has durable, if it ends in a record of that epoch (R8). A
/// follower only learns of it. One per epoch; called within the core's steps.
/// </summary>
internal sealed class CommitRule(ReplicaContext context, ulong epoch, ProgressTracker tracker)
{
    private Etag DurableOnMajority => tracker.Voters.Agreed(tracker.DurableOf);

    /// <summary>Commits what may be committed now. False as long as no record of this epoch is.</summary>
    public bool TryCommit()
    {
        var durable = DurableOnMajority;
        // A record of an older epoch may still be replaced by a later leader, even if a majority has it. The first one of this epoch commits it, too (R8).
        if (durable.Epoch != epoch)
            return false;

        Invariant.Check(durable <= context.Journal.Last.Etag, $"A majority has {durable}, but this leader's journal ends at {context.Journal.Last.Name}.");
        context.CommitTo(durable);
        return true;
    }
}
