using KvCluster.Serving;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Serving;

/// <summary>
/// Connections are not read while the pool has too much to do. 400 connections with 500 requests each had 200,000 work items stand before everything else that a leader did: its heartbeats
/// waited for seconds, and it lost its shards.
/// </summary>
public sealed class ReadingGateTests
{
    private const int QueuedMax = 100;
    private const int Batch = 4;

    private readonly ReadingGate _gate;
    private long _queued;

    public ReadingGateTests() => _gate = new ReadingGate(() => Volatile.Read(ref _queued), QueuedMax, Batch);

    [Fact]
    public async Task Pass_WithALongQueue_WaitsUntilItIsShort_AndInTurn()
    {
        Assert.True(_gate.PassAsync().IsCompleted);
        Volatile.Write(ref _queued, QueuedMax + 1);
        var waiting = Enumerable.Range(0, 10 * Batch).Select(_ => _gate.PassAsync()).ToList();
        Assert.All(waiting.Skip(10), turn => Assert.False(turn.IsCompleted));
        // While others wait nobody overtakes them.
        Volatile.Write(ref _queued, QueuedMax);
        Assert.False(_gate.PassAsync().IsCompleted);
        Volatile.Write(ref _queued, 0);
        for (var number = 0; number < waiting.Count; number++)
        {
            await waiting[number];
            Assert.All(waiting.Take(number), turn => Assert.True(turn.IsCompleted));
        }
        await Eventually.TrueAsync(() => _gate.Waiting == 0, "all have passed");
        Assert.True(_gate.PassAsync().IsCompleted);
    }

    [Fact]
    public async Task Pass_WithAQueueThatStaysLong_LetsOneAfterTheOtherThrough()
    {
        Volatile.Write(ref _queued, long.MaxValue);
        await Task.WhenAll(Enumerable.Range(0, 5).Select(_ => _gate.PassAsync()));
    }

    [Fact]
    public async Task Read_OfAConnection_WaitsAtTheGate()
    {
        await using var server = await EchoServer.StartAsync(listen: _gate.Guard);
        await server.Client.UnaryAsync(new EchoRequest());
        Volatile.Write(ref _queued, QueuedMax + 1);
        var calls = Enumerable.Range(0, 20).Select(_ => server.Client.UnaryAsync(new EchoRequest()).ResponseAsync).ToList();
        await Eventually.TrueAsync(() => _gate.Waiting == 1 || calls.TrueForAll(call => call.IsCompleted), "what has come on it waits");
        Volatile.Write(ref _queued, 0);
        await Task.WhenAll(calls);
    }

    [Fact]
    public async Task Close_OfConnectionsThatWaitAtTheGate_EndsThem()
    {
        await using var server = await EchoServer.StartAsync(listen: _gate.Guard);
        Volatile.Write(ref _queued, QueuedMax + 1);
        var connections = new List<Grpc.Wire.Http2Connection>();
        for (var number = 0; number < 5; number++)
            connections.Add(await Grpc.Wire.Http2Connection.ConnectAsync(server.Port));
        foreach (var connection in connections)
            connection.Dispose();
        await Eventually.TrueAsync(() => server.Connections == 0, "all have ended");
        Volatile.Write(ref _queued, 0);
        await server.Client.UnaryAsync(new EchoRequest());
    }
}
