using System.Net;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.Grpc.Wire;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>
/// Connections are not read while the thread pool has too much work. 400 connections with 500 requests each put 200,000 work items before everything
/// else that a leader did. Its heartbeats waited for seconds, and it lost its shards.
/// </summary>
public sealed class ReadingGateTests
{
    private const int QueuedMax = 100;
    private const int Batch = 4;
    private const int Waiters = 10 * Batch;
    private static readonly IPAddress Host = IPAddress.Loopback;

    // Lets nobody through while the queue is long, however slow the test is.
    private readonly ReadingGate _gate;
    private long _queued;

    public ReadingGateTests() => _gate = new ReadingGate(() => Volatile.Read(ref _queued), QueuedMax, Batch, looksWithoutAny: int.MaxValue);

    [Fact]
    public async Task Pass_WithALongQueue_WaitsUntilItIsShort()
    {
        Assert.True(await PassAsync(_gate));
        Volatile.Write(ref _queued, QueuedMax + 1);
        var waiting = Enumerable.Range(0, Waiters).Select(_ => PassAsync(_gate)).ToList();
        // While others wait, nobody overtakes them. They wait until half of the queue is gone.
        Volatile.Write(ref _queued, QueuedMax);
        waiting.Add(PassAsync(_gate));
        Assert.Equal(Waiters + 1, _gate.Waiting);
        Assert.DoesNotContain(waiting, turn => turn.IsCompleted);
        Volatile.Write(ref _queued, QueuedMax / 2);
        Assert.DoesNotContain(false, await Task.WhenAll(waiting));
        Assert.Equal(0, _gate.Waiting);
        Volatile.Write(ref _queued, QueuedMax);
        Assert.True(PassAsync(_gate).IsCompleted);
    }

    [Fact]
    public async Task Pass_SeveralWaiting_IsInOrder()
    {
        // The queue is short once for each turn.
        var turns = 0;
        var gate = new ReadingGate(() => Interlocked.Decrement(ref turns) >= 0 ? 0 : QueuedMax + 1, QueuedMax, Batch, looksWithoutAny: int.MaxValue);
        var waiting = Enumerable.Range(0, Waiters).Select(_ => PassAsync(gate)).ToList();
        while (waiting.Count > 0)
        {
            Volatile.Write(ref turns, 1);
            Assert.Same(waiting[0], await Task.WhenAny(waiting));
            waiting.RemoveAt(0);
            Assert.Equal(waiting.Count, gate.Waiting);
        }
    }

    /// <summary>The turns were in the order of arrival, so a router's connection waited until those of thousands of a stranger's had been read.</summary>
    [Fact]
    public async Task Pass_BesideManyConnectionsOfAnotherHost_IsNextButOne()
    {
        var turns = 0;
        var gate = new ReadingGate(() => Interlocked.Decrement(ref turns) >= 0 ? 0 : QueuedMax + 1, QueuedMax, Batch, looksWithoutAny: int.MaxValue);
        var many = Enumerable.Range(0, Waiters).Select(_ => PassAsync(gate)).ToList();
        var few = Enumerable.Range(0, 2).Select(_ => PassAsync(gate, IPAddress.Parse("10.0.0.1"))).ToList();
        // A turn each: the first of the many, the first of the few, the second of the many, the second of the few.
        foreach (var next in new[] { many[0], few[0], many[1], few[1], many[2] })
        {
            Volatile.Write(ref turns, 1);
            Assert.True(await next);
        }
        Assert.Equal(Waiters - 3, gate.Waiting);
        Volatile.Write(ref turns, int.MaxValue);
        await Task.WhenAll(many);
    }

    [Fact]
    public async Task Pass_QueueStaysLong_LetsThroughOneAfterTheOther()
    {
        var gate = new ReadingGate(static () => long.MaxValue, QueuedMax, Batch, looksWithoutAny: 2);
        Assert.DoesNotContain(false, await Task.WhenAll(Enumerable.Range(0, 5).Select(_ => PassAsync(gate))));
    }

    /// <summary>A connection that ended kept waiting. Thousands of them would have been ahead of the live ones.</summary>
    [Fact]
    public async Task Pass_ConnectionEnds_NoLongerWaits()
    {
        Volatile.Write(ref _queued, QueuedMax + 1);
        using var closed = new CancellationTokenSource();
        var gone = Enumerable.Range(0, Waiters).Select(_ => _gate.PassAsync(Host, closed.Token).AsTask()).ToList();
        var stays = PassAsync(_gate);
        await closed.CancelAsync();
        Assert.DoesNotContain(true, await Task.WhenAll(gone));
        Assert.Equal(1, _gate.Waiting);
        Assert.False(await _gate.PassAsync(Host, closed.Token));
        Assert.False(stays.IsCompleted);
        Volatile.Write(ref _queued, 0);
        Assert.True(await stays);
    }

    [Fact]
    public async Task Read_OfAConnection_WaitsAtTheGate()
    {
        await using var server = await EchoServer.StartAsync(listen: _gate.Guard);
        await server.Client.UnaryAsync(new EchoRequest());
        Volatile.Write(ref _queued, QueuedMax + 1);
        var calls = Enumerable.Range(0, 20).Select(_ => server.Client.UnaryAsync(new EchoRequest()).ResponseAsync).ToList();
        await Eventually.TrueAsync(() => _gate.Waiting == 1, "what has come on it waits");
        Assert.DoesNotContain(calls, call => call.IsCompleted);
        Volatile.Write(ref _queued, 0);
        await Task.WhenAll(calls);
    }

    /// <summary>
    /// A connection whose caller had gone stayed until its turn came and kept its place. Data that arrived together with the end was still served.
    /// </summary>
    [Fact]
    public async Task Close_ConnectionsWaitingAtTheGate_EndsThemUnread()
    {
        const int count = 5;
        await using var server = await EchoServer.StartAsync(listen: _gate.Guard);
        var held = new TaskCompletionSource();
        server.Service.Held = held.Task;
        Volatile.Write(ref _queued, QueuedMax + 1);
        var connections = new List<Http2Connection>();
        for (var number = 0; number < count; number++)
        {
            connections.Add(await Http2Connection.ConnectAsync(server.Port));
            await connections[^1].WriteAsync(
                [.. Request.ToBytes(), .. new Http2Frame(Http2Frame.Data, Http2Frame.EndStream, 1, Http2Frame.Message([])).ToBytes()]);
        }
        await Eventually.TrueAsync(() => server.Connections == count && _gate.Waiting == count, "all wait");
        foreach (var connection in connections)
            connection.Dispose();
        await Eventually.TrueAsync(() => server.Connections == 0, "all have ended");
        Assert.Equal((0, 0), (_gate.Waiting, server.Service.Open));
        held.SetResult();
        Volatile.Write(ref _queued, 0);
        await server.Client.UnaryAsync(new EchoRequest());
    }

    private static Http2Frame Request => new(
        Http2Frame.Headers,
        Http2Frame.EndHeaders,
        1,
        Http2Frame.HeaderBlock(
            (":method", "POST"), (":scheme", "http"), (":path", "/kvcluster.testing.Echo/Unary"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc")));

    private static Task<bool> PassAsync(ReadingGate gate, IPAddress? host = null) => gate.PassAsync(host ?? Host, CancellationToken.None).AsTask();
}
