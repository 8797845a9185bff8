namespace KvCluster.Client.Transport;

/// <summary>The connection to one node, shared by the calls of all callers. Thread-safe.</summary>
internal interface INodeConnection : IAsyncDisposable
{
    /// <summary>
    /// The connection has just broken or could not be opened, so calls fail at once for a moment. A connection attempt that takes long counts as paused too.
    /// </summary>
    bool IsPaused { get; }

    /// <summary>One of the reasons for a pause: the connection attempt takes longer than one to a reachable node. A patient call waits for it.</summary>
    bool IsSlow => false;

    /// <summary>Why calls fail while the connection is paused, for an error message.</summary>
    string Failure => "";

    /// <summary>Sends one call, and returns it to its pool if nothing else refers to it. It is answered by its deadline at the latest.</summary>
    ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken);
}
