namespace KvCluster.Client.Routing;

/// <summary>Where shard maps come from. Two implementations: nodes and routers, and the simulation's. Thread-safe.</summary>
internal interface IShardMapSource
{
    /// <summary>The map's stream of a node or router: first the whole map, then what changes. Ends where the other side ends it.</summary>
    /// <exception cref="Grpc.Core.RpcException">It broke, or could not be opened.</exception>
    /// <exception cref="IOException">The same.</exception>
    IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken);
}
