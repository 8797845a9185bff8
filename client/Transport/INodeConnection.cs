namespace KvCluster.Client.Transport;

/// <summary>The way to one node for the calls of all callers. Thread-safe.</summary>
internal interface INodeConnection : IAsyncDisposable
{
    /// <summary>It has just broken, or could not be opened: calls fail at once for a moment.</summary>
    bool IsPaused { get; }

    /// <summary>Sends one call, and gives it back to its pool if nothing else points at it. Its answer comes by its deadline at the latest.</summary>
    ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken);
}
