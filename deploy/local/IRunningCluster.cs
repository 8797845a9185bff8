namespace KvCluster.Local;

/// <summary>The nodes and the router, in this process or as processes of their own. Disposing it stops them within 5 s.</summary>
internal interface IRunningCluster : IAsyncDisposable
{
    /// <summary>Fails with the reason if the cluster cannot continue. Otherwise it never ends.</summary>
    Task Failure { get; }
}
