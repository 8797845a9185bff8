using System.Collections.Concurrent;
using Grpc.Net.Client;
using KvCluster.Tls;

namespace KvCluster.Client.Transport;

/// <summary>One gRPC channel for each address, for calls that do not use the Exchange stream. Thread-safe.</summary>
internal sealed class NodeChannels(TlsConnector connector) : IDisposable
{
    private readonly ConcurrentDictionary<string, GrpcChannel> _channels = new();

    public GrpcChannel To(string address) => _channels.GetOrAdd(address, Open);

    public void Dispose()
    {
        foreach (var channel in _channels.Values)
            channel.Dispose();
    }

    private GrpcChannel Open(string address)
    {
        var handler = new SocketsHttpHandler
        {
            UseProxy = false,
            ConnectTimeout = TimeSpan.FromSeconds(2),
            ConnectCallback = connector.ConnectAsync,
            KeepAlivePingDelay = TimeSpan.FromSeconds(2),
            KeepAlivePingTimeout = TimeSpan.FromSeconds(2),
        };
        return GrpcChannel.ForAddress(address, new GrpcChannelOptions { HttpHandler = handler, DisposeHttpClient = true, MaxReceiveMessageSize = null });
    }
}
