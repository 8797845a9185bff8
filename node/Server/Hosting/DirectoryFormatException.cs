namespace KvCluster.Node.Hosting;

/// <summary>A folder is not a data directory that this program can use. Nothing in it was changed.</summary>
internal sealed class DirectoryFormatException(string directory, string reason) : IOException($"The folder '{directory}' cannot be used: {reason}.");
