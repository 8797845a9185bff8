namespace KvCluster.Client.Transport;

/// <summary>The way to one node for the calls of all callers. Thread-safe.</summary>
internal interface INodeConnection : IAsyncDisposable
{
    /// <summary>It has just broken, or could not be opened: calls fail at once for a moment. A connection that is being made and takes long counts as such.</summary>
    bool IsPaused { get; }

    /// <summary>One of the reasons for a pause: the connection is being made, and that takes longer than one to a node that is there. A call that is patient waits for it.</summary>
    bool IsSlow => false;

    /// <summary>Sends one call, and gives it back to its pool if nothing else points at it. Its answer comes by its deadline at the latest.</summary>
    ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken);
}
