using System.Collections.Concurrent;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.Tls;

namespace KvCluster.Client.Transport;

/// <summary>One gRPC channel for each address, for calls that do not use the Exchange stream. Thread-safe.</summary>
internal sealed class NodeChannels(TlsConnector connector, ExpectedCluster cluster) : IDisposable
{
    private readonly ConcurrentDictionary<string, (GrpcChannel Channel, CallInvoker Calls)> _channels = new();

    /// <summary>Makes calls to an address, which name the cluster that they are meant for.</summary>
    public CallInvoker To(string address) => _channels.GetOrAdd(address, Open).Calls;

    public void Dispose()
    {
        foreach (var (channel, _) in _channels.Values)
            channel.Dispose();
    }

    private (GrpcChannel Channel, CallInvoker Calls) Open(string address)
    {
        var handler = NodeHandler.Create(connector.ConnectAsync, NodeHandler.ConnectTimeMax);
        var channel = GrpcChannel.ForAddress(address, new GrpcChannelOptions { HttpHandler = handler, DisposeHttpClient = true, MaxReceiveMessageSize = null });
        return (channel, channel.Intercept(cluster));
    }
}
