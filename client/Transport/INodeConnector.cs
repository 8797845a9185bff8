namespace KvCluster.Client.Transport;

/// <summary>The network as the routing of calls sees it. Thread-safe.</summary>
internal interface INodeConnector
{
    /// <summary>A connection, which is opened with its first call and again whenever it broke.</summary>
    INodeConnection Connect(string address);

    /// <summary>The map's stream of a node or router: first the whole map, then what changes. Ends where the other side ends it.</summary>
    /// <exception cref="Grpc.Core.RpcException">It broke, or could not be opened.</exception>
    /// <exception cref="IOException">The same.</exception>
    IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken);
}
