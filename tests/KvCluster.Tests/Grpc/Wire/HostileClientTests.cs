using System.Text;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Tests.Grpc.Proto;
using Xunit.Abstractions;

namespace KvCluster.Tests.Grpc.Wire;

/// <summary>Our server against clients that disconnect or send invalid data: a clean status if one can be sent, and nothing is left behind.</summary>
public sealed class HostileClientTests(ITestOutputHelper output)
{
    private static readonly byte[] Hello = Http2Frame.Message(new EchoRequest { Payload = ByteString.CopyFromUtf8("hello") }.ToByteArray());

    [Theory]
    [InlineData("Unary")]
    [InlineData("Duplex")]
    public async Task Reset_InEveryPosition_EndsTheCallOnly(string method)
    {
        await using var server = await EchoServer.StartAsync();
        using var connection = await Http2Connection.ConnectAsync(server.Port);
        var stream = 1;
        for (var position = 0; position <= Hello.Length; position++, stream += 2)
        {
            await connection.WriteAsync(Request(stream, method));
            await connection.WriteAsync(new Http2Frame(Http2Frame.Data, Http2Frame.None, stream, Hello[..position]));
            await connection.WriteAsync(Http2Frame.ResetOf(stream, errorCode: 8));
        }
        Assert.Equal(StatusCode.OK, await CallAsync(connection, stream, method, Hello));
        await Eventually.TrueAsync(() => server.Service.Open == 0, "no handler is left");
        Assert.Equal(1, server.Connections);
    }

    [Theory]
    [InlineData("Unary")]
    [InlineData("Duplex")]
    public async Task Disconnect_InEveryPosition_LeavesNothingBehind(string method)
    {
        await using var server = await EchoServer.StartAsync();
        byte[] all =
        [
            .. Request(1, method).ToBytes(),
            .. new Http2Frame(Http2Frame.Data, Http2Frame.None, 1, Hello).ToBytes(),
        ];
        for (var position = 0; position <= all.Length; position += position < all.Length - Hello.Length - 9 ? 7 : 1)
        {
            using var connection = await Http2Connection.ConnectAsync(server.Port);
            await connection.WriteAsync(all[..position]);
        }
        await Eventually.TrueAsync(() => server.Service.Open == 0 && server.Connections == 0, "no handler and no connection is left");
        await server.Client.UnaryAsync(new EchoRequest());
    }

    public static TheoryData<string, byte[], string> BadBodies() => new()
    {
        { "no message", [], nameof(StatusCode.Internal) },
        { "a part of a header", [0, 0, 0], nameof(StatusCode.Internal) },
        { "a length that is too long", Http2Frame.Message([10, 1, 65], length: 4), nameof(StatusCode.Internal) },
        { "a length that is too short", Http2Frame.Message([10, 1, 65], length: 2), nameof(StatusCode.Internal) },
        { "a length over the limit", Http2Frame.Message([], length: int.MaxValue), nameof(StatusCode.ResourceExhausted) },
        { "a negative length", Http2Frame.Message([], length: -1), nameof(StatusCode.ResourceExhausted) },
        { "an unknown flag", Http2Frame.Message([], flag: 2), nameof(StatusCode.Internal) },
        { "compressed without an encoding", Http2Frame.Message([10, 1, 65], flag: 1), nameof(StatusCode.Internal) },
        { "not a protobuf message", Http2Frame.Message([255, 255, 255, 255]), nameof(StatusCode.Internal) },
        { "two messages", [.. Hello, .. Hello], nameof(StatusCode.Internal) },
    };

    [Theory]
    [MemberData(nameof(BadBodies))]
    public async Task Unary_WithABadBody_EndsWithItsStatus(string body, byte[] bytes, string expected)
    {
        await using var server = await EchoServer.StartAsync();
        using var connection = await Http2Connection.ConnectAsync(server.Port);
        Assert.True(expected == (await CallAsync(connection, 1, "Unary", bytes)).ToString(), body);
        using var next = await Http2Connection.ConnectAsync(server.Port);
        Assert.Equal(StatusCode.OK, await CallAsync(next, 1, "Unary", Hello));
    }

    [Theory]
    [MemberData(nameof(BadBodies))]
    public async Task Stream_WithABadBody_EndsWithItsStatus(string body, byte[] bytes, string expected)
    {
        await using var server = await EchoServer.StartAsync();
        using var connection = await Http2Connection.ConnectAsync(server.Port);
        // A stream may have no message, or two.
        expected = body is "no message" or "two messages" ? nameof(StatusCode.OK) : expected;
        Assert.True(expected == (await CallAsync(connection, 1, "ClientStream", bytes)).ToString(), body);
        await Eventually.TrueAsync(() => server.Service.Open == 0, "no handler is left");
    }

    [Fact]
    public async Task InvalidGzip_IsInternal_AndUnknownEncoding_IsUnimplemented()
    {
        await using var server = await EchoServer.StartAsync();
        using (var connection = await Http2Connection.ConnectAsync(server.Port))
            Assert.Equal(StatusCode.Internal, await CallAsync(connection, 1, "Unary", Http2Frame.Message([1, 2, 3], flag: 1), ("grpc-encoding", "gzip")));
        using (var connection = await Http2Connection.ConnectAsync(server.Port))
            Assert.Equal(StatusCode.Unimplemented, await CallAsync(connection, 1, "Unary", Hello, ("grpc-encoding", "zigzag")));
    }

    [Fact]
    public async Task RandomBytes_AsConnectionOrBody_NeverStopTheServer()
    {
        var random = Seeds.Next(output);
        await using var server = await EchoServer.StartAsync();
        for (var i = 0; i < 200; i++)
        {
            var garbage = new byte[random.Next(1, 400)];
            random.NextBytes(garbage);
            using var connection = await Http2Connection.ConnectAsync(server.Port);
            if (i % 2 == 0)
            {
                await connection.WriteAsync(garbage);
                continue;
            }
            var status = await CallAsync(connection, 1, "Duplex", garbage);
            Assert.True(status is StatusCode.Internal or StatusCode.ResourceExhausted or StatusCode.OK, $"run {i}: {status}");
        }
        await Eventually.TrueAsync(() => server.Service.Open == 0 && server.Connections == 0, "nothing is left");
        await server.Client.UnaryAsync(new EchoRequest());
    }

    private static Http2Frame Request(int stream, string method, params (string, string)[] more) => new(
        Http2Frame.Headers,
        Http2Frame.EndHeaders,
        stream,
        Http2Frame.HeaderBlock(
        [
            (":method", "POST"), (":scheme", "http"), (":path", $"/kvcluster.testing.Echo/{method}"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc"), .. more,
        ]));

    /// <summary>Makes a whole call and returns its status.</summary>
    private static async Task<StatusCode> CallAsync(Http2Connection connection, int stream, string method, byte[] body, params (string, string)[] headers)
    {
        await connection.WriteAsync(Request(stream, method, headers));
        await connection.WriteAsync(new Http2Frame(Http2Frame.Data, Http2Frame.EndStream, stream, body));
        while (await connection.ReadAsync() is { } frame)
        {
            if (frame.Stream == stream && frame.Type == Http2Frame.Reset && frame.Payload[3] != 0)
                Assert.Fail($"The server reset the call with {frame.Payload[3]}.");
            // Kestrel writes names and values as literals if they are new to the connection.
            const string name = "grpc-status";
            var text = Encoding.Latin1.GetString(frame.Payload);
            if (frame.Stream == stream && frame.Type == Http2Frame.Headers && text.IndexOf(name, StringComparison.Ordinal) is >= 0 and var at)
                return (StatusCode)int.Parse(text.AsSpan(at + name.Length + 1, text[at + name.Length]), System.Globalization.CultureInfo.InvariantCulture);
        }
        throw new InvalidOperationException("The server closed the connection without a status.");
    }
}
