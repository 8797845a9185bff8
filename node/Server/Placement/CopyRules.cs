using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.Node.Shards;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Inspection;

namespace KvCluster.Node.Placement;

/// <summary>
/// When a copy that was set aside may be deleted for its space: what <see cref="CopyRelease"/> requires of the copy and of the shard's record, and
/// <see cref="CopyWitness"/> of the shard's leader. Each condition that does not hold is a reason to keep the copy. Pure.
/// </summary>
internal static class CopyRules
{
    /// <summary>Why the node that has a copy keeps it; null if the shard's leader is to be asked.</summary>
    /// <param name="copy">What is in the copy.</param>
    /// <param name="shard">The shard by the name of its directory.</param>
    /// <param name="node">This node.</param>
    /// <param name="record">The shard's record, read afresh.</param>
    /// <param name="revision">The record's mod revision.</param>
    public static string? WhyKept(CopyExtent copy, ShardId shard, NodeIdentity node, ShardRecord record, long revision)
    {
        if (copy.Newest is null || copy.Control is not { } control)
            return $"its newest record cannot be determined: {copy.WhyUnknown}";
        if (copy.Shard != shard)
            return $"it is a copy of shard {copy.Shard}";
        if (control.ClusterHash != node.ClusterHash)
            return "it is of another cluster, or of another lineage of this one";
        if (Lineage.Read(record.Lineage) != node.Lineage)
            return "the shard's record is of another lineage than this node's data";
        // The record also must not be older than what the replica had seen, as that of a coordinator restored from a backup would be (F41).
        return new Retirement(control.Generation, control.PromisedEpoch, new RecordVersion(control.Recovery, control.CoordinatorRevision))
            .WhyNot(record, revision, copy.Replica);
    }

    /// <summary>Why the shard's leader cannot say that a majority has everything that is in the copy of a removed replica; null if it can.</summary>
    /// <param name="view">The leader's view, taken after the round.</param>
    /// <param name="record">The shard's record, read afresh.</param>
    /// <param name="copy">The replica whose copy it is.</param>
    /// <param name="newest">The copy's newest record.</param>
    /// <param name="confirmed">What was committed when a majority had answered a round of heartbeats that was sent after the question; null if there was
    /// none.</param>
    public static string? WhyNotHeld(LeaderView view, ShardRecord record, ReplicaId copy, Etag newest, Etag? confirmed)
    {
        if (confirmed is not { } committed)
            return "the shard's leader was not confirmed by a majority";
        // The leader's record is never newer than the coordinator's, unless that was restored from a backup.
        if (view.Record.Generation != record.Generation || view.Epoch != record.Epoch)
            return $"the coordinator's record of the shard (generation {record.Generation}, epoch {record.Epoch}) is not the one that its leader has "
                + $"({view.Record.Generation}, {view.Epoch})";
        if (view.Record.Replicas.Any(replica => replica.ReplicaId == copy))
            return "the shard's record names its replica";
        if (committed < newest)
            return $"its newest record is {EtagText.Of(newest)}, but a majority has committed only {EtagText.Of(committed)}";
        return WhyNotCompared(view, newest);
    }

    /// <summary>Why the trees of a majority of the voters are not known to be equal at a record or a later one; null if they are.</summary>
    /// <param name="view">The leader's view.</param>
    /// <param name="newest">The record.</param>
    public static string? WhyNotCompared(LeaderView view, Etag newest)
    {
        if (view.DigestsAgree is not { } agreed || agreed.Etag < newest)
            return $"since the shard's leader was elected, its voters' trees were not found equal at {EtagText.Of(newest)} or later; "
                + "they are compared soon, unless comparisons are switched off (digest-interval-minutes)";
        var voters = view.Record.Replicas.Where(static replica => !replica.Learner).Select(static replica => replica.ReplicaId).ToList();
        return voters.Count(voter => agreed.Voters.Contains(voter)) * 2 > voters.Count
            ? null
            : "the voters whose trees were found equal are no majority of the present ones; they are compared again soon, unless comparisons are switched off "
                + "(digest-interval-minutes)";
    }
}
