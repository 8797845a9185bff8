using System.Collections.Concurrent;
using KvCluster.Client.Transport;

namespace KvCluster.Tests.Client;

/// <summary>The connections of one client, by address.</summary>
public sealed class NodeConnectionsTests
{
    /// <summary>
    /// A call that was in progress when its client was closed, and went to a node that the client had no connection to yet, made one that nobody closed.
    /// </summary>
    [Fact]
    public async Task Connection_ThatIsMadeWhenEverythingIsClosed_IsClosedAtOnce()
    {
        var connector = new CountingConnector();
        var connections = new NodeConnections(connector);
        connections.To("http://node-1:7400");
        await connections.DisposeAsync();
        connections.To("http://node-1:7400");
        connections.To("http://node-2:7400");
        Assert.Equal(3, connector.Made.Count);
        Assert.All(connector.Made, static connection => Assert.Equal(1, connection.Closings));
    }

    [Fact]
    public async Task Connection_IsMadeOnceForAnAddress_AndClosedOnce()
    {
        var connector = new CountingConnector();
        var connections = new NodeConnections(connector);
        Assert.Same(connections.To("http://node-1:7400"), connections.To("http://node-1:7400"));
        await connections.DisposeAsync();
        await connections.DisposeAsync();
        Assert.Equal(1, Assert.Single(connector.Made).Closings);
    }

    private sealed class CountingConnector : INodeConnector
    {
        public ConcurrentQueue<CountingConnection> Made { get; } = new();

        public INodeConnection Connect(string address)
        {
            var connection = new CountingConnection();
            Made.Enqueue(connection);
            return connection;
        }

        public IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken) => throw new NotSupportedException();
    }

    private sealed class CountingConnection : INodeConnection
    {
        public int Closings { get; private set; }

        public bool IsPaused => false;

        public ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken) => throw new NotSupportedException();

        public ValueTask DisposeAsync()
        {
            Closings++;
            return ValueTask.CompletedTask;
        }
    }
}
