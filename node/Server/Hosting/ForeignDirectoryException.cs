namespace KvCluster.Node.Hosting;

/// <summary>A data directory belongs to another node, or to a node of another cluster. Nothing in it was changed.</summary>
internal sealed class ForeignDirectoryException(string directory, string reason) : Exception($"The folder '{directory}' is {reason}.");
