namespace KvCluster.Node.Coordination;

/// <summary>A folder belongs to another process.</summary>
internal sealed class DirectoryInUseException(string directory, Exception inner)
    : IOException($"The folder '{directory}' is in use by another process.", inner);
