using Google.Rpc;
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
using KvCluster.Serving;
using KvCluster.Serving.Memory;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.Grpc.Wire;
using KvCluster.Tests.Serving.Security;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// Calls that are open at a time. Nothing bounded them but Kestrel's streams of all connections: 3,500 connections with 100 requests each, of which nothing but the headers ever came,
/// took a node to 4 GB and its leaderships with it.
/// </summary>
public sealed class OpenCallsTests
{
    private const int Places = 64;

    [Fact]
    public async Task Headers_WithoutAMessage_BeyondTheBound_AreRefusedWhileOthersAreServed()
    {
        const int calls = 48;
        var open = NewCalls();
        await using var server = await StartAsync(open);
        var flood = new List<Http2Connection>();
        for (var number = 0; number < 8; number++)
        {
            var connection = await Http2Connection.ConnectAsync(server.Port);
            flood.Add(connection);
            for (var call = 0; call < calls; call++)
                await connection.WriteAsync(Request((2 * call) + 1, call % 2 == 0 ? "Unary" : "Duplex"));
            // The first takes three quarters, which is not more than its share while it is alone; each of the others finds one place.
            if (number == 0)
                await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "the first connection has what one may have");
            else
                await ReadRefusalsAsync(connection, calls - 1);
            Assert.InRange(open.Taken, 1, Places);
        }
        Assert.Equal((Places * 3 / 4) + 7, open.Taken);

        // Whoever has no call open gets one.
        for (var number = 0; number < 20; number++)
            await server.Client.UnaryAsync(new EchoRequest());
        foreach (var connection in flood)
            connection.Dispose();
        await Eventually.TrueAsync(() => open.Taken == 0, "all places come back");
        await Task.WhenAll(Enumerable.Range(0, Places / 4).Select(async _ => await server.Client.UnaryAsync(new EchoRequest())));
        await Eventually.TrueAsync(() => open.Taken == 0, "the places of answered calls come back");
    }

    /// <summary>
    /// Whoever did not listen to refusals went on for ever, and each stream cost 6 KB and a turn of the pool before it was refused: 400 connections with 500 requests each took a
    /// leader's heartbeats the processor, and its leaderships.
    /// </summary>
    [Fact]
    public async Task Headers_OfAConnectionWhoseCallsAreRefusedOnAndOn_EndIt()
    {
        var (open, log) = (NewCalls(), new LinesLog());
        var limit = new ConnectionLimit(100, log, TimeProvider.System);
        await using var server = await EchoServer.StartAsync(listen: limit.Guard, configureServices: services => services.AddSingleton(open));
        using var holder = await Http2Connection.ConnectAsync(server.Port);
        for (var call = 0; call < Places * 3 / 4; call++)
            await holder.WriteAsync(Request((2 * call) + 1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "one connection has what one may have");
        using var flood = await Http2Connection.ConnectAsync(server.Port);
        // It has a place for one. No more at a time than the server takes streams, and whole requests, as Kestrel keeps a stream of which a part is to come for some seconds.
        await flood.WriteAsync(Request(1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == (Places * 3 / 4) + 1, "its first call has a place");
        for (var call = 1; call <= OpenCalls.RefusedInRowMax;)
        {
            var count = Math.Min(50, OpenCalls.RefusedInRowMax + 1 - call);
            await flood.WriteAsync([.. Enumerable.Range(call, count).SelectMany(
                number => (Request((2 * number) + 1, "Unary") with { Flags = Http2Frame.EndHeaders | Http2Frame.EndStream }).ToBytes())]);
            call += count;
            while (count > 0 && call <= OpenCalls.RefusedInRowMax)
            {
                var frame = await flood.ReadAsync();
                Assert.NotNull(frame);
                count -= frame.Type == Http2Frame.Headers ? 1 : 0;
            }
        }
        while (await flood.ReadAsync() is not null)
        {
            // What was refused before.
        }
        // Its one call ended with it; nobody else's did.
        await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "the place comes back");
        await Eventually.TrueAsync(() => log.Lines.Length > 0, "the log says so");
        Assert.Contains($"{OpenCalls.RefusedInRowMax} calls in a row", Assert.Single(log.Lines), StringComparison.Ordinal);
        await server.Client.UnaryAsync(new EchoRequest());
        Assert.Equal(OpenCalls.RefusedInRowMax, open.Refused);
    }

    [Fact]
    public void Refuse_OfAConnectionWhoseCallsFindPlacesInBetween_NeverEndsIt()
    {
        var (open, busy) = (NewCalls(), new ConnectionCalls());
        var holder = new ConnectionCalls();
        while (open.TryTake(holder))
            Assert.InRange(open.Taken, 1, Places);
        for (var round = 0; round < 10; round++)
        {
            Assert.True(open.TryTake(busy));
            for (var call = 1; call < OpenCalls.RefusedInRowMax; call++)
                Assert.False(open.TryTake(busy) || open.Refuse(busy, new HttpResponseFeature()));
            open.Return(busy);
        }
        Assert.True(open.TryTake(busy));
        Assert.Equal([OpenCalls.RefusedInRowMax], Enumerable.Range(1, 1_000).Where(_ => !open.TryTake(busy) && open.Refuse(busy, new HttpResponseFeature())));
    }

    [Fact]
    public async Task Refusal_OfAProcess_SaysThatItIsBusyAndNothingWasApplied()
    {
        var memory = new CallMemory(mebibytes: 1);
        await using var server = await EchoServer.StartAsync(listen: Count, configureServices: memory.AddTo);
        var held = new TaskCompletionSource();
        server.Service.Held = held.Task;
        var calls = Enumerable.Range(0, CallMemory.OpenCallsPerMebibyte * 2).Select(_ => server.Client.UnaryAsync(new EchoRequest()).ResponseAsync).ToList();
        await Eventually.TrueAsync(() => calls.Exists(call => call.IsFaulted), "some are refused");
        var refusal = await Assert.ThrowsAsync<RpcException>(() => calls.First(call => call.IsFaulted));
        Assert.Equal(StatusCode.ResourceExhausted, refusal.StatusCode);
        Assert.DoesNotContain('\n', refusal.Status.Detail);
        var info = refusal.GetRpcStatus()!.GetDetail<ErrorInfo>()!;
        Assert.Equal(("BUSY", "no"), (info.Reason, info.Metadata["applied"]));
        held.SetResult();
        await Eventually.TrueAsync(() => calls.TrueForAll(call => call.IsCompleted), "the others are answered");
        // Nothing else would show that callers find no places.
        Assert.Equal(calls.Count(call => call.IsFaulted), memory.CallsRefused);
        await server.Client.UnaryAsync(new EchoRequest());
    }

    [Fact]
    public void Take_FromHalfOn_KeepsConnectionsToTheirShare()
    {
        var open = NewCalls();
        var many = new ConnectionCalls();
        for (var place = 0; place < Places / 2; place++)
            Assert.True(open.TryTake(many));
        // With two connections each has half as its share.
        Assert.True(open.TryTake(new ConnectionCalls()));
        Assert.False(open.TryTake(many));
        // With many each has a few, until three quarters are taken; from then on only who has none gets a place, up to the bound.
        var others = Enumerable.Range(0, Places).Select(_ => new ConnectionCalls()).ToList();
        foreach (var other in others.Take(2))
            Assert.True(open.TryTake(other) && open.TryTake(other));
        Assert.True(open.TryTake(others[0]));
        while (open.Taken < Places * 3 / 4)
            Assert.Contains(others, open.TryTake);
        Assert.False(open.TryTake(others[0]));
        Assert.Equal(Places / 4, others.Count(other => other.Open == 0 && open.TryTake(other)));
        Assert.Equal(Places, open.Taken);
        Assert.False(open.TryTake(new ConnectionCalls()));
        // Places that come back are given again, and refusing left nothing.
        open.Return(many);
        Assert.False(open.TryTake(many));
        Assert.True(open.TryTake(new ConnectionCalls()));
        Assert.Equal(Places, open.Taken);
    }

    private static OpenCalls NewCalls() => new(Places, new RpcException(new global::Grpc.Core.Status(StatusCode.ResourceExhausted, "No place.")));

    private static Task<EchoServer> StartAsync(OpenCalls open) => EchoServer.StartAsync(listen: Count, configureServices: services => services.AddSingleton(open));

    private static void Count(ListenOptions listen) => new ConnectionLimit(100, NullLogger.Instance, TimeProvider.System).Guard(listen);

    // A refusal ends the stream from here, and a reset without an error tells a caller that is still sending to stop.
    private static async Task ReadRefusalsAsync(Http2Connection connection, int count)
    {
        var (refused, reset) = (0, 0);
        while (refused < count || reset < count)
        {
            var frame = await connection.ReadAsync();
            Assert.NotNull(frame);
            if (frame.Type == Http2Frame.Headers && (frame.Flags & Http2Frame.EndStream) != 0)
                refused++;
            if (frame.Type == Http2Frame.Reset && frame.Payload[3] == 0)
                reset++;
        }
    }

    private static Http2Frame Request(int stream, string method) => new(
        Http2Frame.Headers,
        Http2Frame.EndHeaders,
        stream,
        Http2Frame.HeaderBlock(
            (":method", "POST"), (":scheme", "http"), (":path", $"/kvcluster.testing.Echo/{method}"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc")));
}
