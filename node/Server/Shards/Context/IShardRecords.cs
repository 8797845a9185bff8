using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;

namespace KvCluster.Node.Shards.Context;

/// <summary>The result of a read of a shard's record.</summary>
/// <param name="Record">The record; null if there is none or the read failed, in which case nothing is known.</param>
/// <param name="Revision">The record's mod revision, to compare against.</param>
internal readonly record struct ShardRecordRead(ShardRecord? Record, long Revision);

/// <summary>A shard's access to its record in the coordinator. Two implementations: over <c>ICoordinator</c>, and the simulator's.</summary>
internal interface IShardRecords
{
    /// <summary>Reads the record with a linearizable read sent after this call. Answers once, on any thread, within the coordinator's timeout.</summary>
    void Read(ShardId shard, Action<ShardRecordRead> done);

    /// <summary>
    /// Puts the record if its mod revision is still <paramref name="expectedRevision"/>. Makes one attempt and never repeats it by itself. Answers once, on
    /// any thread.
    /// </summary>
    void CompareAndSet(ShardId shard, ShardRecord record, long expectedRevision, Action<CompareAndSetResult> done);
}
