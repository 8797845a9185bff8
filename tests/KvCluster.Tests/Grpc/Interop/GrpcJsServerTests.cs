using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>Our client against @grpc/grpc-js as a server, tests/interop/server.js.</summary>
public sealed class GrpcJsServerTests(GrpcJsServer server) : IClassFixture<GrpcJsServer>
{
    private Echo.EchoClient Client => server.Client;

    private static DateTime Deadline => DateTime.UtcNow + Eventually.Limit;

    [NodeFact]
    public async Task EmptyUnary() => Assert.Empty((await Client.UnaryAsync(new EchoRequest(), deadline: Deadline)).Payload);

    [NodeFact]
    public async Task LargeUnary()
    {
        var payload = ByteString.CopyFrom(Enumerable.Range(0, 271828).Select(i => (byte)i).ToArray());
        Assert.Equal(payload, (await Client.UnaryAsync(new EchoRequest { Payload = payload }, deadline: Deadline)).Payload);
        Assert.Equal(3141592, (await Client.UnaryAsync(new EchoRequest { ReplyBytes = 3141592 }, deadline: Deadline)).Payload.Length);
    }

    [NodeFact]
    public async Task ClientStreaming()
    {
        using var call = Client.ClientStream(deadline: Deadline);
        foreach (var size in new[] { 27182, 8, 1828, 45904 })
            await call.RequestStream.WriteAsync(new EchoRequest { Payload = ByteString.CopyFrom(new byte[size]) });
        await call.RequestStream.CompleteAsync();
        Assert.Equal(74922, (await call).Payload.Length);
    }

    [NodeFact]
    public async Task ServerStreaming()
    {
        using var call = Client.ServerStream(new EchoRequest { ReplyBytes = 31415, ReplyCount = 100 }, deadline: Deadline);
        var sizes = new List<int>();
        await foreach (var reply in call.ResponseStream.ReadAllAsync())
            sizes.Add(reply.Payload.Length);
        Assert.Equal(Enumerable.Repeat(31415, 100), sizes);
    }

    [NodeFact]
    public async Task DuplexStreaming()
    {
        using var call = Client.Duplex(deadline: Deadline);
        for (byte i = 0; i < 200; i++)
        {
            await call.RequestStream.WriteAsync(new EchoRequest { Payload = ByteString.CopyFrom(i) });
            Assert.True(await call.ResponseStream.MoveNext());
            Assert.Equal(i, call.ResponseStream.Current.Payload[0]);
        }
        await call.RequestStream.CompleteAsync();
        Assert.False(await call.ResponseStream.MoveNext());
    }

    [NodeFact]
    public async Task EmptyStream()
    {
        using var call = Client.Duplex(deadline: Deadline);
        await call.RequestStream.CompleteAsync();
        Assert.False(await call.ResponseStream.MoveNext());
        Assert.Equal(StatusCode.OK, call.GetStatus().StatusCode);
    }

    [NodeFact]
    public async Task CancelBeforeFirstMessage()
    {
        using var cancellation = new CancellationTokenSource();
        using var call = Client.Duplex(deadline: Deadline, cancellationToken: cancellation.Token);
        var next = call.ResponseStream.MoveNext();
        cancellation.CancelAfter(20);
        await AssertFails(StatusCode.Cancelled, () => next);
    }

    [NodeFact]
    public async Task CancelAfterFirstMessage()
    {
        using var cancellation = new CancellationTokenSource();
        using var call = Client.Duplex(deadline: Deadline, cancellationToken: cancellation.Token);
        await call.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await call.ResponseStream.MoveNext());
        await cancellation.CancelAsync();
        await AssertFails(StatusCode.Cancelled, () => call.ResponseStream.MoveNext());
        await AssertFails(StatusCode.Cancelled, () => call.RequestStream.WriteAsync(new EchoRequest()));
    }

    [NodeFact]
    public async Task DeadlineExceededOnSleepingServer()
    {
        await AssertFails(StatusCode.DeadlineExceeded, async () => await Client.UnaryAsync(
            new EchoRequest { DelayMs = 200_000 }, deadline: DateTime.UtcNow.AddMilliseconds(100)));
        using var call = Client.Duplex(deadline: DateTime.UtcNow.AddMilliseconds(100));
        await AssertFails(StatusCode.DeadlineExceeded, () => call.ResponseStream.MoveNext());
    }

    [NodeFact]
    public async Task StatusCodeAndMessage()
    {
        var ordered = new EchoRequest { StatusCode = (int)StatusCode.FailedPrecondition, StatusMessage = "test status message" };
        var failure = await AssertFails(StatusCode.FailedPrecondition, async () => await Client.UnaryAsync(ordered, deadline: Deadline));
        Assert.Equal("test status message", failure.Status.Detail);
        using var call = Client.Duplex(deadline: Deadline);
        await call.RequestStream.WriteAsync(new EchoRequest { StatusCode = (int)StatusCode.Aborted, StatusMessage = "after a reply" });
        Assert.True(await call.ResponseStream.MoveNext());
        failure = await AssertFails(StatusCode.Aborted, () => call.ResponseStream.MoveNext());
        Assert.Equal("after a reply", failure.Status.Detail);
    }

    [NodeFact]
    public async Task SpecialStatusMessage()
    {
        const string message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈 and 100 %25\t\n";
        var ordered = new EchoRequest { StatusCode = (int)StatusCode.Unknown, StatusMessage = message };
        var failure = await AssertFails(StatusCode.Unknown, async () => await Client.UnaryAsync(ordered, deadline: Deadline));
        Assert.Equal(message, failure.Status.Detail);
    }

    [NodeFact]
    public async Task UnimplementedMethod() =>
        await AssertFails(StatusCode.Unimplemented, async () => await Client.MissingAsync(new EchoRequest(), deadline: Deadline));

    [NodeFact]
    public async Task UnimplementedService() =>
        await AssertFails(
            StatusCode.Unimplemented, async () => await new Absent.AbsentClient(server.Channel.Calls()).UnaryAsync(new EchoRequest(), deadline: Deadline));

    [NodeFact]
    public async Task CustomMetadata()
    {
        byte[] trailing = [0xab, 0xab, 0xab];
        var headers = new Metadata { { "x-echo-initial", "test_initial_metadata_value" }, { "x-echo-trailing-bin", trailing } };
        using var unary = Client.UnaryAsync(new EchoRequest(), headers, Deadline);
        Assert.Equal("test_initial_metadata_value", (await unary.ResponseHeadersAsync).GetValue("x-echo-initial"));
        await unary;
        Assert.Equal(trailing, unary.GetTrailers().GetValueBytes("x-echo-trailing-bin"));
        using var duplex = Client.Duplex(headers, Deadline);
        await duplex.RequestStream.WriteAsync(new EchoRequest());
        await duplex.RequestStream.CompleteAsync();
        Assert.Equal("test_initial_metadata_value", (await duplex.ResponseHeadersAsync).GetValue("x-echo-initial"));
        Assert.True(await duplex.ResponseStream.MoveNext());
        Assert.False(await duplex.ResponseStream.MoveNext());
        Assert.Equal(trailing, duplex.GetTrailers().GetValueBytes("x-echo-trailing-bin"));
    }

    [NodeFact]
    public async Task RequestTooLarge()
    {
        var request = new EchoRequest { Payload = ByteString.CopyFrom(new byte[5 << 20]) };
        // The server's limit.
        await AssertFails(StatusCode.ResourceExhausted, async () => await Client.UnaryAsync(request, deadline: Deadline));
        // Our own.
        using var channel = GrpcChannel.ForAddress(server.Address, new GrpcChannelOptions { MaxSendMessageSize = 1000 });
        await AssertFails(StatusCode.ResourceExhausted, async () => await new Echo.EchoClient(channel.Calls()).UnaryAsync(request, deadline: Deadline));
    }

    [NodeFact]
    public async Task ResponseTooLarge() =>
        await AssertFails(StatusCode.ResourceExhausted, async () => await Client.UnaryAsync(new EchoRequest { ReplyBytes = 5 << 20 }, deadline: Deadline));

    [NodeFact]
    public async Task ServerDiesMidStream()
    {
        var mortal = new GrpcJsServer();
        await mortal.InitializeAsync();
        try
        {
            using var call = mortal.Client.Duplex(deadline: Deadline);
            await call.RequestStream.WriteAsync(new EchoRequest { ReplyCount = 3, Die = true });
            await AssertFails(StatusCode.Unavailable, async () =>
            {
                while (await call.ResponseStream.MoveNext())
                    continue;
            });
            await AssertFails(StatusCode.Unavailable, async () => await mortal.Client.UnaryAsync(new EchoRequest(), deadline: Deadline));
        }
        finally
        {
            await mortal.DisposeAsync();
        }
    }

    private static async Task<RpcException> AssertFails(StatusCode expected, Func<Task> call)
    {
        var failure = await Assert.ThrowsAsync<RpcException>(call);
        Assert.True(expected == failure.StatusCode, $"Expected {expected}: {failure}");
        return failure;
    }
}
