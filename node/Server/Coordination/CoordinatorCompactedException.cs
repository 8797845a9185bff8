namespace KvCluster.Node.Coordination;

/// <summary>A watch asked for changes that are no longer kept: list, and watch from there.</summary>
internal sealed class CoordinatorCompactedException(long keptFrom) : Exception($"Changes are kept from revision {keptFrom} on.")
{
    /// <summary>The oldest revision that a watch can start from.</summary>
    public long KeptFrom => keptFrom;
}
