using System.Collections.Concurrent;

namespace KvCluster.Client.Transport;

/// <summary>One connection for each address that was ever called. Their number is bounded by the cluster's nodes. Thread-safe.</summary>
internal sealed class NodeConnections(INodeConnector connector) : IAsyncDisposable
{
    private readonly ConcurrentDictionary<string, Lazy<INodeConnection>> _connections = new();

    public INodeConnection To(string address) => _connections.TryGetValue(address, out var connection)
        ? connection.Value
        : _connections.GetOrAdd(address, key => new Lazy<INodeConnection>(() => connector.Connect(key))).Value;

    public async ValueTask DisposeAsync()
    {
        foreach (var connection in _connections.Values)
            await connection.Value.DisposeAsync().ConfigureAwait(false);
    }
}
