using System.Buffers.Binary;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.Grpc.Wire;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// The number of open calls. Only Kestrel's limit of streams per connection bounded them. 3,500 connections with 100 requests each, which never sent
/// more than headers, took a node to 4 GB, and it lost its leaderships.
/// </summary>
public sealed class OpenCallLimitTests
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
            // The first connection takes three quarters, its share while it is alone. Each of the others finds one place.
            if (number == 0)
                await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "the first connection has its maximum of places");
            else
                await ReadRefusalsAsync(connection, calls - 1);
            Assert.InRange(open.Taken, 1, Places);
        }
        Assert.Equal((Places * 3 / 4) + 7, open.Taken);

        // A caller without open calls gets a place.
        for (var number = 0; number < 20; number++)
            await server.Client.UnaryAsync(new EchoRequest());
        foreach (var connection in flood)
            connection.Dispose();
        await Eventually.TrueAsync(() => open.Taken == 0, "all places are released");
        await Task.WhenAll(Enumerable.Range(0, Places / 4).Select(async _ => await server.Client.UnaryAsync(new EchoRequest())));
        await Eventually.TrueAsync(() => open.Taken == 0, "the places of answered calls are released");
    }

    /// <summary>
    /// Callers that ignored refusals continued for ever, and each stream cost 6 KB and a turn of the thread pool before it was refused. 400
    /// connections with 500 requests each took the processor from a leader's heartbeats, and it lost its leaderships.
    /// </summary>
    [Fact]
    public async Task Headers_RepeatedDespiteRefusals_EndTheConnection()
    {
        var (open, log) = (NewCalls(), new LinesLog());
        var limit = new ConnectionLimit(100, log, TimeProvider.System);
        await using var server = await EchoServer.StartAsync(listen: limit.Guard, configureServices: services => services.AddSingleton(open));
        using var holder = await Http2Connection.ConnectAsync(server.Port);
        for (var call = 0; call < Places * 3 / 4; call++)
            await holder.WriteAsync(Request((2 * call) + 1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "one connection has its maximum of places");
        using var flood = await Http2Connection.ConnectAsync(server.Port);
        // The connection gets one place. It sends no more at a time than the server accepts streams, and whole requests, because Kestrel keeps an
        // incomplete stream for some seconds.
        await flood.WriteAsync(Request(1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == (Places * 3 / 4) + 1, "its first call has a place");
        var goAways = 0;
        await RefuseAsync(1, OpenCallLimit.RefusedInRowMax);
        while (goAways == 0)
            await ReadAsync();
        await Eventually.TrueAsync(() => log.Lines.Length > 0, "the log says so");
        Assert.Contains($"{OpenCallLimit.RefusedInRowMax} of its calls in a row", Assert.Single(log.Lines), StringComparison.Ordinal);
        // Open calls continue, even while refused calls are still in flight.
        await RefuseAsync(OpenCallLimit.RefusedInRowMax + 1, OpenCallLimit.RefusedInRowEnd - 1);
        Assert.Equal((Places * 3 / 4) + 1, open.Taken);
        await WriteAsync(OpenCallLimit.RefusedInRowEnd, 1);
        while (await flood.ReadAsync() is not null)
        {
            // Replies to calls refused before.
        }
        // Only its own call ended with it.
        await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "the place is released");
        await server.Client.UnaryAsync(new EchoRequest());
        Assert.Equal((OpenCallLimit.RefusedInRowEnd, 1), (open.Refused, goAways));
        Assert.Single(log.Lines);

        Task WriteAsync(int first, int count) => flood.WriteAsync([.. Enumerable.Range(first, count)
            .SelectMany(number => (Request((2 * number) + 1, "Unary") with { Flags = Http2Frame.EndHeaders | Http2Frame.EndStream }).ToBytes())]);

        async Task RefuseAsync(int first, int last)
        {
            for (var call = first; call <= last;)
            {
                var count = Math.Min(50, last + 1 - call);
                await WriteAsync(call, count);
                for (call += count; count > 0;)
                    count -= (await ReadAsync()).Type == Http2Frame.Headers ? 1 : 0;
            }
        }

        async Task<Http2Frame> ReadAsync()
        {
            var frame = await flood.ReadAsync();
            Assert.NotNull(frame);
            if (frame.Type == Http2Frame.GoAway)
            {
                // Without an error: everything sent before it is answered.
                Assert.Equal((0, int.MaxValue), (frame.Payload[7], BinaryPrimitives.ReadInt32BigEndian(frame.Payload)));
                goAways++;
            }
            return frame;
        }
    }

    /// <summary>
    /// Callers that waited as told were disconnected with everybody on their connection by the second round of refusals. A stream held the only place
    /// of the connection, and none of 255 calls found one meanwhile. Writes on that stream ended with an unknown outcome.
    /// </summary>
    [Fact]
    public async Task Calls_ThatWaitBeforeRetrying_FindPlacesAndAStreamOfTheirConnectionContinues()
    {
        const int callers = 255;
        var (open, log) = (NewCalls(), new LinesLog());
        var limit = new ConnectionLimit(100, log, TimeProvider.System);
        using var handler = new SocketsHttpHandler { EnableMultipleHttp2Connections = false };
        await using var server = await EchoServer.StartAsync(
            channelOptions: new GrpcChannelOptions { HttpHandler = handler }, listen: limit.Guard, configureServices: services => services.AddSingleton(open));
        using var holder = await Http2Connection.ConnectAsync(server.Port);
        for (var call = 0; call < Places * 3 / 4; call++)
            await holder.WriteAsync(Request((2 * call) + 1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == Places * 3 / 4, "one connection has its maximum of places");
        using var stream = server.Client.Duplex();
        await stream.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        await Task.WhenAll(Enumerable.Range(0, callers).Select(async _ =>
        {
            while (!await FindsPlaceAsync(server.Client))
                await Task.Delay(50);
        }));
        Assert.InRange(open.Refused, callers + 1, int.MaxValue);
        Assert.NotEmpty(log.Lines);
        await stream.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        await stream.RequestStream.CompleteAsync();
        Assert.False(await stream.ResponseStream.MoveNext(CancellationToken.None));
    }

    [Fact]
    public void Refuse_WithAcceptedCallsInBetween_NeverEndsTheConnection()
    {
        var (open, busy) = (NewCalls(), new ConnectionCalls());
        var holder = new ConnectionCalls();
        while (open.TryTake(holder))
            Assert.InRange(open.Taken, 1, Places);
        for (var round = 0; round < 10; round++)
        {
            Assert.True(open.TryTake(busy));
            for (var call = 1; call < OpenCallLimit.RefusedInRowMax; call++)
                Assert.True(!open.TryTake(busy) && open.Refuse(busy, new HttpResponseFeature()) == ConnectionFate.GoesOn);
            open.Return(busy);
        }
        Assert.True(open.TryTake(busy));
        var fates = Enumerable.Range(1, 2 * OpenCallLimit.RefusedInRowEnd).Where(_ => !open.TryTake(busy))
            .Select(call => (call, Fate: open.Refuse(busy, new HttpResponseFeature())));
        Assert.Equal(
            [(OpenCallLimit.RefusedInRowMax, ConnectionFate.TakesNoMore), (OpenCallLimit.RefusedInRowEnd, ConnectionFate.Ends)],
            fates.Where(refusal => refusal.Fate != ConnectionFate.GoesOn));
    }

    /// <summary>They were in no metric, so that a process at which callers with short deadlines arrive looked idle.</summary>
    [Fact]
    public async Task CallsWhoseCallersAreGoneBeforeTheyBegin_AreCounted()
    {
        var open = NewCalls();
        await using var server = await StartAsync(open);
        using var connection = await Http2Connection.ConnectAsync(server.Port);
        await connection.WriteAsync(Request(1, "Unary"));
        await Eventually.TrueAsync(() => open.Taken == 1, "the headers have arrived");
        Assert.Equal(0, open.Gone);
        await connection.WriteAsync(new Http2Frame(Http2Frame.Reset, Http2Frame.None, 1, [0, 0, 0, 8]));
        await Eventually.TrueAsync(() => open.Gone == 1, "the call without a caller is counted");
        // A request of two mebibytes arrives for longer than a millisecond, unless the deadline's timer is late.
        var large = new EchoRequest { Payload = ByteString.CopyFrom(new byte[2 << 20]) };
        using var hurried = GrpcChannel.ForAddress($"http://127.0.0.1:{server.Port}", TimeoutHeader.Options());
        await Eventually.TrueAsync(
            async () =>
            {
                try
                {
                    await new Echo.EchoClient(hurried.Calls()).UnaryAsync(large, new Metadata { { TimeoutHeader.Metadata, "1m" } });
                }
                catch (RpcException)
                {
                    // By its deadline, or because the server no longer reads.
                }
                return open.Gone > 1;
            },
            "a call whose deadline passes while its request arrives is counted");
        await Eventually.TrueAsync(() => open.Taken == 0, "all have ended");
        var gone = open.Gone;
        await server.Client.UnaryAsync(new EchoRequest());
        Assert.Equal(gone, open.Gone);
    }

    [Fact]
    public async Task Refusal_SaysThatTheProcessIsBusyAndNothingWasApplied()
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
        // No other metric shows that callers find no places.
        Assert.Equal(calls.Count(call => call.IsFaulted), memory.CallsRefused);
        await server.Client.UnaryAsync(new EchoRequest());
    }

    [Fact]
    public void Take_BeyondHalf_KeepsConnectionsToTheirShare()
    {
        var open = NewCalls();
        var many = new ConnectionCalls();
        for (var place = 0; place < Places / 2; place++)
            Assert.True(open.TryTake(many));
        // With two connections the share of each is half.
        Assert.True(open.TryTake(new ConnectionCalls()));
        Assert.False(open.TryTake(many));
        // With many connections each has a few places, until three quarters are taken. From then on only connections without a place get one, up to the bound.
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
        // Released places are given out again, and refusals left nothing behind.
        open.Return(many);
        Assert.False(open.TryTake(many));
        Assert.True(open.TryTake(new ConnectionCalls()));
        Assert.Equal(Places, open.Taken);
    }

    private static async Task<bool> FindsPlaceAsync(Echo.EchoClient client)
    {
        try
        {
            await client.UnaryAsync(new EchoRequest());
            return true;
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.ResourceExhausted)
        {
            return false;
        }
    }

    private static OpenCallLimit NewCalls() => new(Places, new RpcException(new global::Grpc.Core.Status(StatusCode.ResourceExhausted, "No place.")));

    private static Task<EchoServer> StartAsync(OpenCallLimit open) =>
        EchoServer.StartAsync(listen: Count, configureServices: services => services.AddSingleton(open));

    private static void Count(ListenOptions listen) => new ConnectionLimit(100, NullLogger.Instance, TimeProvider.System).Guard(listen);

    // The server ends the stream with a refusal, and a reset without an error tells a caller that is still sending to stop.
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
