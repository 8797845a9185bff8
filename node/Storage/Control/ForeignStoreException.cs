namespace KvCluster.Storage.Control;

/// <summary>A directory is not the replica's that was to be opened: nothing in it was changed, and only an operator knows what it is.</summary>
/// <param name="directory">The directory.</param>
/// <param name="found">Whose it is.</param>
/// <param name="expected">Whose it should be.</param>
internal sealed class ForeignStoreException(string directory, StoreIdentity found, StoreIdentity expected) : Exception(
    $"'{directory}' holds replica {found.ReplicaId:x16} of shard {found.Shard}{(found.ClusterHash == expected.ClusterHash ? "" : " of another cluster")}, "
    + $"and is to hold {expected.ReplicaId:x16} of shard {expected.Shard}.");
