using KvCluster.Internal.V1;

namespace KvCluster.Simulation;

/// <summary>The mark that a node sets in the shard's record when it has created a replica's directory.</summary>
internal static class CreatedMark
{
    /// <summary>A record with the mark. Null if the replica has it already or is no longer in the record.</summary>
    public static ShardRecord? On(ShardRecord record, ReplicaId replica)
    {
        var marked = record.Clone();
        if (marked.Replicas.SingleOrDefault(other => other.ReplicaId == replica) is not { Created: false } created)
            return null;
        created.Created = true;
        return marked;
    }
}
