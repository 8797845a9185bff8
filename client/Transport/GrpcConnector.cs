using System.Runtime.CompilerServices;
using Grpc.Net.Client;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Transport;

/// <summary>Connects to nodes and routers over gRPC. Thread-safe.</summary>
/// <param name="connector">Makes the connections.</param>
/// <param name="callsInFlightMax">The number of places for open calls at one node.</param>
/// <param name="log">Gets what no caller is told.</param>
/// <param name="connectTimeMax">The longest time that a connection attempt may take; null means two seconds.</param>
internal sealed class GrpcConnector(TlsConnector connector, int callsInFlightMax, ILogger log, TimeSpan? connectTimeMax = null) : INodeConnector
{
    /// <summary>The cluster that streams of calls are meant for.</summary>
    public ExpectedCluster Cluster { get; init; } = new();

    /// <summary>Returns the header of requests to an address by which the program authorizes itself; null: none has it.</summary>
    public Func<Uri, CancellationToken, ValueTask<string?>>? Authorization { get; init; }

    public INodeConnection Connect(string address) =>
        new NodeConnection(address, connector, callsInFlightMax, log, connectTimeMax ?? NodeHandler.ConnectTimeMax)
        {
            Cluster = Cluster, Authorization = Authorization,
        };

    public async IAsyncEnumerable<V1.ShardMap> WatchMap(string address, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        using var handler = NodeHandler.Create(connector.ConnectAsync, connectTimeMax ?? NodeHandler.ConnectTimeMax, Authorization);
        using var channel = GrpcChannel.ForAddress(address, new GrpcChannelOptions { HttpHandler = handler, MaxReceiveMessageSize = null });
        using var stream = new V1.Cluster.ClusterClient(channel.Calls()).WatchShards(new V1.WatchShardsRequest(), cancellationToken: cancellationToken);
        while (await stream.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
            yield return stream.ResponseStream.Current;
    }
}
