namespace KvCluster.Node.Hosting;

/// <summary>A data directory is not the one that was started last: an old copy, whose promises are out of date, or one that is being started twice.</summary>
internal sealed class StaleDirectoryException(string directory, string reason) : Exception($"The folder '{directory}' is not the node's newest: {reason}.")
{
    public StaleDirectoryException(string directory, ulong here, ulong counted)
        : this(directory, $"it was started {here} times, the coordinator counted {counted}; start the node with its newest folder, or with an empty one")
    {
    }
}
