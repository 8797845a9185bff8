namespace KvCluster.Storage.Inspection;

/// <summary>A path that was given to a tool is not the directory of a replica. Nothing was changed.</summary>
internal sealed class NotAReplicaException(string path, string reason) : IOException($"'{path}' is not a replica's directory: {reason}");
