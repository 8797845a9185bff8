using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Hosting;

/// <summary>
/// Whether a replica has left its shard: what it had seen of its shard's record, in its control file and in memory, when a read of that record was sent. The
/// result of the read must not be older. <see cref="ShardHost"/> then stops the replica and moves its directory away.
/// </summary>
internal readonly record struct Retirement(ulong Generation, ulong Epoch, RecordVersion Version)
{
    /// <summary>The greater of each value.</summary>
    public Retirement Or(Retirement other) =>
        new(Math.Max(Generation, other.Generation), Math.Max(Epoch, other.Epoch), RecordVersion.Max(Version, other.Version));

    /// <summary>
    /// Why a record, read afresh, does not justify moving a replica's directory away; null if it does. It is not enough that it does not name the replica: a
    /// coordinator restored from a backup does not know of replicas that were added later, and those vote.
    /// </summary>
    /// <param name="record">The shard's record.</param>
    /// <param name="revision">The record's mod revision.</param>
    /// <param name="replica">The replica's id.</param>
    public string? WhyNot(ShardRecord record, long revision, ReplicaId replica) =>
        record.Replicas.Any(named => named.ReplicaId == replica) ? "the record names it"
        : !record.HasRemoved(replica) ? "the record does not list it as removed"
        : record.Generation < Generation || record.Epoch < Epoch || RecordVersion.Of(record, revision) < Version
            ? $"the record (generation {record.Generation}, epoch {record.Epoch}, revision {RecordVersion.Of(record, revision)}) is older than what was seen "
                + $"before ({Generation}, {Epoch}, {Version})"
        : null;
}
