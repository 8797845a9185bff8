namespace KvCluster.Client.Routing;

/// <summary>A source of shard maps. There are two implementations: nodes and routers over gRPC, and the simulation's. Thread-safe.</summary>
internal interface IShardMapSource
{
    /// <summary>Streams the map of a node or router: first all of it, then the changes. Ends when the other side ends it.</summary>
    /// <exception cref="Grpc.Core.RpcException">The stream broke or could not be opened.</exception>
    /// <exception cref="IOException">The stream broke or could not be opened.</exception>
    IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken);
}
