namespace KvCluster.Node.Coordination;

/// <summary>A request that the embedded coordinator refuses; it changed nothing.</summary>
internal sealed class CoordinatorRequestException(string reason, bool isNotFound = false) : Exception(reason)
{
    /// <summary>What it names is not there.</summary>
    public bool IsNotFound { get; } = isNotFound;
}
