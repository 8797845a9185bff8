namespace KvCluster.Storage.Control;

/// <summary>Which replica a directory belongs to, according to its control file.</summary>
/// <param name="ReplicaId">The replica's id.</param>
/// <param name="Shard">The shard it belongs to.</param>
/// <param name="ClusterHash">Hash of the cluster's name and creation.</param>
internal readonly record struct StoreIdentity(ReplicaId ReplicaId, ShardId Shard, ulong ClusterHash)
{
    /// <summary>
    /// What every embedded store has (FORMAT.md, "Embedded store"), so that a replica of a cluster, whose id is random, is not mistaken for one. The hash is
    /// the text "embedded".
    /// </summary>
    public static readonly StoreIdentity Embedded = new(new ReplicaId(1), new ShardId(0), 0x6465_6464_6562_6D65);
}

/// <summary>A directory does not belong to the replica that was to be opened. Nothing in it was changed; an operator has to find out what it is.</summary>
/// <param name="directory">The directory.</param>
/// <param name="found">The replica that it belongs to.</param>
/// <param name="expected">The replica that it should belong to.</param>
internal sealed class ForeignStoreException(string directory, StoreIdentity found, StoreIdentity expected) : Exception(
    $"'{directory}' belongs to replica {found.ReplicaId:x16} of shard "
    + $"{found.Shard}{(found.ClusterHash == expected.ClusterHash ? "" : " of another cluster or lineage")}, "
    + $"but should belong to replica {expected.ReplicaId:x16} of shard {expected.Shard}. Nothing was changed; check which directory was mounted here.");
