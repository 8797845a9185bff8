namespace KvCluster.Node.Hosting;

/// <summary>A data directory is not the one that was started last, and its node may not go on without that one: an old copy, whose promises are out of date, or one that is being started twice.</summary>
internal sealed class StaleDirectoryException(string directory, string reason) : Exception($"The folder '{directory}' is not the node's newest: {reason}.")
{
    /// <param name="directory">Where it is.</param>
    /// <param name="here">How often it was started.</param>
    /// <param name="counted">How often the coordinator counted that the node was.</param>
    /// <param name="why">What keeps the node from going on as one that lost its disk.</param>
    public StaleDirectoryException(string directory, ulong here, ulong counted, string why)
        : this(directory, $"it was started {here} times, the coordinator counted {counted}. It is left as it is, as {why}. Start the node with its newest folder, or the other nodes first; "
            + "where neither is to be had, see 'Old copies of data' in README.md")
    {
    }
}
