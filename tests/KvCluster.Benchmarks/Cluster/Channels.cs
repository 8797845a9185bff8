using Grpc.Net.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Four connections to one server, over which callers are spread. The same for every system measured.</summary>
internal sealed class Channels(string address) : IDisposable
{
    private const int Connections = 4;

    private readonly GrpcChannel[] _channels = [.. Enumerable.Range(0, Connections).Select(_ => GrpcChannel.ForAddress(address))];

    /// <summary>One client per connection. Caller c uses <c>clients[c % clients.Length]</c>.</summary>
    public TClient[] Clients<TClient>(Func<GrpcChannel, TClient> client) => [.. _channels.Select(client)];

    public void Dispose()
    {
        foreach (var channel in _channels)
            channel.Dispose();
    }
}
