using System.Net;
using System.Net.Sockets;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Wire;

/// <summary>Our client against servers that disconnect or answer invalid data: every call ends with a status.</summary>
public sealed class HostileServerTests
{
    private static readonly byte[] Hello = Http2Frame.Message(new EchoReply { Payload = ByteString.CopyFromUtf8("hello") }.ToByteArray());
    private static readonly Http2Frame Opening = HeadersFrame(Http2Frame.None, (":status", "200"), ("content-type", "application/grpc"));
    private static readonly Http2Frame Ok = HeadersFrame(Http2Frame.EndStream, ("grpc-status", "0"));

    [Fact]
    public async Task ValidAnswer_IsAccepted()
    {
        Assert.Equal(StatusCode.OK, await UnaryAsync(Opening, Data(Hello), Ok));
        Assert.Equal(StatusCode.OK, await StreamAsync(Opening, Data(Hello), Ok));
    }

    [Theory]
    [InlineData(0, nameof(StatusCode.Internal))]
    [InlineData(1, nameof(StatusCode.Internal))]
    [InlineData(2, nameof(StatusCode.Internal))]
    [InlineData(7, nameof(StatusCode.Unavailable))]
    [InlineData(8, nameof(StatusCode.Cancelled))]
    [InlineData(11, nameof(StatusCode.ResourceExhausted))]
    [InlineData(12, nameof(StatusCode.PermissionDenied))]
    public async Task Reset_InEveryPosition_IsTheStatusOfItsCode(int errorCode, string expected)
    {
        // HttpClient handles a reset with "no error" and a reset of a refused call by itself.
        if (errorCode is not (0 or 7))
            Assert.Equal(expected, (await UnaryAsync(Http2Frame.ResetOf(1, errorCode))).ToString());
        for (var position = 0; position <= Hello.Length; position++)
        {
            Assert.Equal(expected, (await UnaryAsync(Opening, Data(Hello[..position]), Http2Frame.ResetOf(1, errorCode))).ToString());
            Assert.Equal(expected, (await StreamAsync(Opening, Data(Hello[..position]), Http2Frame.ResetOf(1, errorCode))).ToString());
        }
    }

    [Fact]
    public async Task Disconnect_InEveryPosition_IsUnavailable()
    {
        byte[] all = [.. Opening.ToBytes(), .. Data(Hello).ToBytes(), .. Ok.ToBytes()];
        for (var position = 0; position < all.Length; position += 3)
        {
            Assert.Equal(StatusCode.Unavailable, await AnswerAsync(all[..position], UnaryAsync));
            Assert.Equal(StatusCode.Unavailable, await AnswerAsync(all[..position], StreamAsync));
        }
    }

    public static TheoryData<string, byte[], string> BadBodies() => new()
    {
        { "a part of a header", [0, 0, 0], nameof(StatusCode.Internal) },
        { "a length that is too long", Http2Frame.Message([10, 1, 65], length: 4), nameof(StatusCode.Internal) },
        { "a length that is too short", Http2Frame.Message([10, 1, 65], length: 2), nameof(StatusCode.Internal) },
        { "a length over the limit", Http2Frame.Message([], length: int.MaxValue), nameof(StatusCode.ResourceExhausted) },
        { "a negative length", Http2Frame.Message([], length: -1), nameof(StatusCode.Internal) },
        { "an unknown flag", Http2Frame.Message([], flag: 2), nameof(StatusCode.Internal) },
        { "compressed without an encoding", Http2Frame.Message([10, 1, 65], flag: 1), nameof(StatusCode.Internal) },
        { "not a protobuf message", Http2Frame.Message([255, 255, 255, 255]), nameof(StatusCode.Internal) },
    };

    [Theory]
    [MemberData(nameof(BadBodies))]
    public async Task BadBody_EndsTheCallWithItsStatus(string body, byte[] bytes, string expected)
    {
        Assert.True(expected == (await UnaryAsync(Opening, Data(bytes), Ok)).ToString(), body);
        Assert.True(expected == (await StreamAsync(Opening, Data(bytes), Ok)).ToString(), body);
    }

    [Fact]
    public async Task UnaryAnswer_WithNoMessageOrTwo_IsInternal()
    {
        Assert.Equal(StatusCode.Internal, await UnaryAsync(Opening, Ok));
        Assert.Equal(StatusCode.Internal, await UnaryAsync(Opening, Data([.. Hello, .. Hello]), Ok));
    }

    [Fact]
    public async Task AnswerWithoutAStatus_IsUnknown() =>
        Assert.Equal(StatusCode.Unknown, await UnaryAsync(Opening, Data(Hello) with { Flags = Http2Frame.EndStream }));

    [Theory]
    [InlineData("401", nameof(StatusCode.Unauthenticated))]
    [InlineData("403", nameof(StatusCode.PermissionDenied))]
    [InlineData("404", nameof(StatusCode.Unimplemented))]
    [InlineData("429", nameof(StatusCode.Unavailable))]
    [InlineData("503", nameof(StatusCode.Unavailable))]
    [InlineData("418", nameof(StatusCode.Unknown))]
    [InlineData("200", nameof(StatusCode.Unknown))]
    public async Task AnswerThatIsNotGrpc_IsTheStatusOfItsHttpStatus(string httpStatus, string expected) =>
        Assert.Equal(expected, (await UnaryAsync(HeadersFrame(Http2Frame.EndStream, (":status", httpStatus), ("content-type", "text/html")))).ToString());

    [Fact]
    public async Task TrailersOnly_CarryStatusMessageAndMetadata()
    {
        using var listener = Listen(out var channel);
        using (channel)
        {
            var serving = ServeAsync(listener, HeadersFrame(
                Http2Frame.EndStream,
                (":status", "200"),
                ("content-type", "application/grpc"), ("grpc-status", "5"), ("grpc-message", "not %E2%98%BA here"), ("x-more-bin", "q6ur")).ToBytes());
            var failure = await Assert.ThrowsAsync<RpcException>(async () => await new Echo.EchoClient(channel.Calls()).UnaryAsync(new EchoRequest()));
            Assert.Equal(StatusCode.NotFound, failure.StatusCode);
            Assert.Equal("not ☺ here", failure.Status.Detail);
            Assert.Equal([0xab, 0xab, 0xab], failure.Trailers.GetValueBytes("x-more-bin")!);
            channel.Dispose();
            await serving;
        }
    }

    [Fact]
    public async Task GarbageInsteadOfHttp2_EndsTheCall()
    {
        using var listener = Listen(out var channel);
        using (channel)
        {
            var call = new Echo.EchoClient(channel.Calls()).UnaryAsync(new EchoRequest());
            using var tcp = await listener.AcceptTcpClientAsync();
            await tcp.GetStream().WriteAsync("HTTP/1.1 400 Bad Request\r\n\r\nI do not speak that."u8.ToArray());
            var failure = await Assert.ThrowsAsync<RpcException>(async () => await call);
            Assert.True(failure.StatusCode is StatusCode.Unavailable or StatusCode.Internal, failure.Message);
        }
    }

    [Fact]
    public async Task ServerThatFallsSilent_IsDetectedByKeepAlivePings()
    {
        using var listener = Listen(out var channel, new SocketsHttpHandler
        {
            KeepAlivePingDelay = TimeSpan.FromSeconds(1),
            KeepAlivePingTimeout = TimeSpan.FromSeconds(1),
        });
        using (channel)
        {
            using var call = new Echo.EchoClient(channel.Calls()).Duplex();
            using var tcp = await listener.AcceptTcpClientAsync();
            using var connection = await Http2Connection.AcceptAsync(tcp);
            // From here on nothing is answered.
            var failure = await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext().WaitAsync(Eventually.Limit));
            Assert.True(failure.StatusCode is StatusCode.Unavailable, failure.ToString());
        }
    }

    private static Http2Frame HeadersFrame(byte flags, params (string, string)[] fields) =>
        new(Http2Frame.Headers, (byte)(flags | Http2Frame.EndHeaders), 1, Http2Frame.HeaderBlock(fields));

    private static Http2Frame Data(byte[] bytes) => new(Http2Frame.Data, Http2Frame.None, 1, bytes);

    private static Task<StatusCode> UnaryAsync(params Http2Frame[] answer) =>
        AnswerAsync([.. answer.SelectMany(frame => frame.ToBytes())], UnaryAsync, keepOpen: true);

    private static Task<StatusCode> StreamAsync(params Http2Frame[] answer) =>
        AnswerAsync([.. answer.SelectMany(frame => frame.ToBytes())], StreamAsync, keepOpen: true);

    private static async Task UnaryAsync(Echo.EchoClient client) => await client.UnaryAsync(new EchoRequest());

    private static async Task StreamAsync(Echo.EchoClient client)
    {
        using var call = client.Duplex();
        await call.RequestStream.WriteAsync(new EchoRequest());
        while (await call.ResponseStream.MoveNext())
            Assert.Equal("hello", call.ResponseStream.Current.Payload.ToStringUtf8());
    }

    private static async Task<StatusCode> AnswerAsync(byte[] answer, Func<Echo.EchoClient, Task> call, bool keepOpen = false)
    {
        using var listener = Listen(out var channel);
        using (channel)
        {
            var serving = ServeAsync(listener, answer, keepOpen);
            var status = StatusCode.OK;
            try
            {
                await call(new Echo.EchoClient(channel.Calls())).WaitAsync(Eventually.Limit);
            }
            catch (RpcException failure)
            {
                status = failure.StatusCode;
            }
            channel.Dispose();
            await serving;
            return status;
        }
    }

    private static TcpListener Listen(out GrpcChannel channel, SocketsHttpHandler? handler = null)
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        channel = GrpcChannel.ForAddress($"http://{listener.LocalEndpoint}", new GrpcChannelOptions { HttpHandler = handler, DisposeHttpClient = true });
        return listener;
    }

    /// <summary>Answers the first call with these bytes, then closes the connection, at once or when the client does.</summary>
    private static async Task ServeAsync(TcpListener listener, byte[] answer, bool keepOpen = true)
    {
        using var tcp = await listener.AcceptTcpClientAsync();
        using var connection = await Http2Connection.AcceptAsync(tcp);
        while (await connection.ReadAsync() is { } frame)
        {
            if (frame.Type != Http2Frame.Headers)
                continue;
            await connection.WriteAsync(answer);
            if (!keepOpen)
            {
                // A FIN instead of a reset, so that the written bytes arrive.
                tcp.Client.Shutdown(SocketShutdown.Send);
            }
        }
        listener.Stop();
    }
}
