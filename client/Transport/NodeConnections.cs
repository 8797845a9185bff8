using System.Collections.Concurrent;
using KvCluster.Security;

namespace KvCluster.Client.Transport;

/// <summary>One connection for each address that was ever called. Bounded by the cluster's nodes. Thread-safe.</summary>
internal sealed class NodeConnections(TlsConnector connector, int callsInFlightMax) : IAsyncDisposable
{
    private readonly ConcurrentDictionary<string, Lazy<NodeConnection>> _connections = new();

    public NodeConnection To(string address) => _connections.TryGetValue(address, out var connection)
        ? connection.Value
        : _connections.GetOrAdd(address, key => new Lazy<NodeConnection>(() => new NodeConnection(key, connector, callsInFlightMax))).Value;

    public async ValueTask DisposeAsync()
    {
        foreach (var connection in _connections.Values)
            await connection.Value.DisposeAsync().ConfigureAwait(false);
    }
}
