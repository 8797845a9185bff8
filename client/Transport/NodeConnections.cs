using System.Collections.Concurrent;

namespace KvCluster.Client.Transport;

/// <summary>One connection for each address that was ever called. Their number is bounded by the cluster's nodes. Thread-safe.</summary>
internal sealed class NodeConnections(INodeConnector connector) : IAsyncDisposable
{
    private readonly ConcurrentDictionary<string, Lazy<INodeConnection>> _connections = new();
    private bool _closed;

    public INodeConnection To(string address) => _connections.TryGetValue(address, out var connection) ? connection.Value : Add(address);

    public async ValueTask DisposeAsync()
    {
        Interlocked.Exchange(ref _closed, true);
        foreach (var address in _connections.Keys)
        {
            // Whoever removes it closes it, once.
            if (_connections.TryRemove(address, out var connection))
                await connection.Value.DisposeAsync().ConfigureAwait(false);
        }
    }

    // A call that had begun before may come here when everything else is closed. Its connection is closed at once and answers it like the others.
    private INodeConnection Add(string address)
    {
        var connection = _connections.GetOrAdd(address, key => new Lazy<INodeConnection>(() => connector.Connect(key))).Value;
        if (Volatile.Read(ref _closed) && _connections.TryRemove(address, out var late))
            _ = late.Value.DisposeAsync().AsTask();
        return connection;
    }
}
