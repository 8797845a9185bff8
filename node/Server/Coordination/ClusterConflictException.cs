namespace KvCluster.Node.Coordination;

/// <summary>A cluster of this name was begun with other shards. Nothing of it was changed.</summary>
internal sealed class ClusterConflictException(string reason) : Exception(reason);
