namespace KvCluster.Local;

/// <summary>The nodes and the router, in this process or as processes of their own. Disposed: all of it is stopped, within 5 s.</summary>
internal interface IRunningCluster : IAsyncDisposable
{
    /// <summary>Ends, with the reason, when the cluster cannot go on; never by itself otherwise.</summary>
    Task Failure { get; }
}
