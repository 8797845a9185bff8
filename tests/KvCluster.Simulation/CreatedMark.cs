using KvCluster.V1;

namespace KvCluster.Simulation;

/// <summary>What a node that has made a replica's directory says in the shard's record.</summary>
internal static class CreatedMark
{
    /// <summary>A record with the mark; null: the replica has it, or is not in the record any more.</summary>
    public static ShardRecord? On(ShardRecord record, ulong replica)
    {
        var marked = record.Clone();
        if (marked.Replicas.SingleOrDefault(other => other.Replica == replica) is not { Created: false } created)
            return null;
        created.Created = true;
        return marked;
    }
}
