using System.IO.Compression;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.Grpc.Wire;
using KvCluster.V1;
using Microsoft.Extensions.DependencyInjection;
using Xunit.Abstractions;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// Compressed requests. They were decompressed to the largest message, 18 MiB out of 17 KB, before their memory was requested, and counted with their
/// compressed size. Half a megabyte of them made a router use 9 GB.
/// </summary>
public sealed class CompressedRequestTests(ITestOutputHelper output)
{
    private const int Mebibyte = 1 << 20;

    // While it grows, a message holds one piece more than its content.
    private const int MessageBytes = (2 * Mebibyte) - (128 << 10);

    // With the length before the name, because names of other fields begin with this one.
    private const string StatusField = "\vgrpc-status";
    private static readonly (string, string) Gzip = ("grpc-encoding", "gzip");

    [Fact]
    public async Task CompressedMessages_OfManyStreams_CountDecompressedAndAreRefusedWithoutRoom()
    {
        var memory = new MessageMemory(8 * Mebibyte, 8 * Mebibyte);
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddSingleton(memory));
        var bomb = Compressed(Request(MessageBytes, delayMs: 600_000));
        Assert.True(bomb.Length < 8 << 10);
        using var connection = await ConnectAsync(server.Port);
        // Three fit beside the part reserved for small ones. The others are told that they were not executed.
        for (var number = 0; number < 3; number++)
        {
            await SendAsync(connection, (2 * number) + 1, "Duplex", bomb, end: false, Gzip);
            await Eventually.TrueAsync(
                () => server.Service.Open == number + 1 && memory.Arriving.Bytes >= (number + 1) * MessageBytes, "the message counts with its real size");
        }
        for (var number = 3; number < 8; number++)
        {
            await SendAsync(connection, (2 * number) + 1, "Duplex", bomb, end: false, Gzip);
            Assert.Equal(StatusCode.Unavailable, await StatusAsync(connection));
            Assert.InRange(memory.Arriving.Bytes, 3 * MessageBytes, 8 * Mebibyte);
        }
        await server.Client.UnaryAsync(new EchoRequest());
        connection.Dispose();
        await Eventually.TrueAsync(() => memory.Arriving.Bytes == 0, "all of its memory is released");
    }

    /// <summary>
    /// An uncompressed message of up to 64 KiB did not count, even if its caller never ended the request. With the maximum number of open calls that
    /// was a gigabyte beyond the budget.
    /// </summary>
    [Theory]
    [InlineData(true, MessageBytes)]
    [InlineData(false, 12 << 10)]
    public async Task Message_OfAnUnfinishedRequest_CountsUntilItsCallerIsGone(bool isCompressed, int bytes)
    {
        var memory = new MessageMemory(8 * Mebibyte, 8 * Mebibyte);
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddSingleton(memory));
        using var connection = await ConnectAsync(server.Port);
        var payload = Request(bytes, delayMs: 0);
        await SendAsync(connection, 1, "Unary", isCompressed ? Compressed(payload) : Http2Frame.Message(payload), end: false, Gzip);
        await Eventually.TrueAsync(() => memory.Arriving.Bytes == payload.Length, "the message counts with its real size");
        connection.Dispose();
        await Eventually.TrueAsync(() => memory.Arriving.Bytes == 0 && server.Connections == 0, "all of its memory is released");
    }

    [Fact]
    public async Task Messages_Served_ReleaseTheirMemory()
    {
        var memory = new MessageMemory(8 * Mebibyte, 8 * Mebibyte);
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddSingleton(memory));
        using var connection = await ConnectAsync(server.Port);
        var message = Compressed(Request(3 * Mebibyte, delayMs: 0));
        for (var number = 0; number < 20; number++)
        {
            await SendAsync(connection, (2 * number) + 1, number % 2 == 0 ? "Unary" : "Duplex", message, end: true, Gzip);
            Assert.Equal(StatusCode.OK, await StatusAsync(connection));
        }
        await Eventually.TrueAsync(() => memory.Arriving.Bytes == 0, "nothing is held");
    }

    [Fact]
    public async Task Message_LargerThanItsMethodAllows_PlainOrDecompressed_IsRefusedWithTheHostsText()
    {
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddSingleton(new RequestSizes(
            static method => method.EndsWith("ServerStream", StringComparison.Ordinal) ? int.MaxValue : 1_000,
            static (bytesMax, isStream) => new RpcException(new Status(StatusCode.InvalidArgument, $"at most {bytesMax}, {isStream}")))));
        using var connection = await ConnectAsync(server.Port);
        var stream = 1;
        foreach (var method in (string[])["Unary", "Duplex"])
        {
            foreach (var isCompressed in (bool[])[false, true])
            {
                var payload = Request(100_000, delayMs: 0);
                await SendAsync(connection, stream, method, isCompressed ? Compressed(payload) : Http2Frame.Message(payload)[..1_005], end: false, Gzip);
                var end = await EndAsync(connection);
                Assert.Equal(StatusCode.InvalidArgument, StatusOf(end));
                Assert.Contains($"at most 1000, {method == "Duplex"}", end, StringComparison.Ordinal);
                stream += 2;
            }
        }
        await SendAsync(connection, stream, "ServerStream", Compressed(Request(100_000, delayMs: 0)), end: true, Gzip);
        Assert.Equal(StatusCode.OK, await StatusAsync(connection));
    }

    /// <summary>Earlier calls of a stream may have been applied; for a single call nothing was.</summary>
    [Theory]
    [InlineData("Unary", "; nothing was applied. Send less in one request.")]
    [InlineData("Duplex", "Unanswered calls of the stream may have been applied; ")]
    public async Task Message_LargerThanItsMethodAllows_IsToldWhatWasApplied(string method, string told)
    {
        await using var server = await EchoServer.StartAsync(configureServices: services => services.AddRequestLimits());
        using var connection = await ConnectAsync(server.Port);
        await SendAsync(connection, 1, method, Http2Frame.Message(Request(RequestLimits.QuestionBytesMax + 1, delayMs: 0)), end: false);
        var end = await EndAsync(connection);
        Assert.Equal(StatusCode.InvalidArgument, StatusOf(end));
        Assert.Contains(told, end, StringComparison.Ordinal);
    }

    [Fact]
    public void Decompress_BeyondTheLimitOrWithoutRoom_AllocatesLittle()
    {
        var payload = new System.Buffers.ReadOnlySequence<byte>(Compressed(new byte[16 * Mebibyte]), 5, Compressed(new byte[16 * Mebibyte]).Length - 5);
        foreach (var (bytesMax, room, code) in ((int, long, StatusCode)[])[(1 << 10, long.MaxValue, StatusCode.ResourceExhausted),
            (16 * Mebibyte, 256 << 10, StatusCode.Unavailable)])
        {
            var held = 0L;
            var before = GC.GetAllocatedBytesForCurrentThread();
            var failure = Assert.Throws<RpcException>(() => Decompression.Decompress(payload, "gzip", bytesMax, bytes =>
            {
                held = bytes;
                if (bytes > room)
                    throw new RpcException(new Status(StatusCode.Unavailable, "no room"));
            }));
            Assert.Equal(code, failure.StatusCode);
            Assert.InRange(held, bytesMax == 1 << 10 ? bytesMax : room, bytesMax == 1 << 10 ? bytesMax + 1 : room + (64 << 10));
            Assert.InRange(GC.GetAllocatedBytesForCurrentThread() - before, 0, Mebibyte);
        }
    }

    [Fact]
    public void Decompress_OfAnyLength_ReturnsTheBytes()
    {
        var random = Seeds.Next(output);
        foreach (var length in (int[])[0, 1, 4_095, 4_096, 4_097, 12_288, 1_000_000, .. Enumerable.Range(0, 20).Select(_ => random.Next(300_000))])
        {
            var bytes = new byte[length];
            random.NextBytes(bytes.AsSpan(0, length / 2));
            var frame = Compressed(bytes);
            using var message = Decompression.Decompress(new System.Buffers.ReadOnlySequence<byte>(frame, 5, frame.Length - 5), "gzip", length, hold: null);
            Assert.True(System.Buffers.BuffersExtensions.ToArray(message.Bytes).AsSpan().SequenceEqual(bytes), $"{length} bytes");
        }
    }

    /// <summary>Our own clients and tools stay far below these limits. Callers that need more send several requests.</summary>
    [Theory]
    [InlineData("/kvcluster.v1.Kv/Put", ListenerLimits.MessageBytesMax)]
    [InlineData("/kvcluster.v1.Kv/Delete", ListenerLimits.MessageBytesMax)]
    [InlineData("/kvcluster.v1.Kv/Exchange", ListenerLimits.MessageBytesMax)]
    [InlineData("/kvcluster.v1.Kv/Scan", RequestLimits.ReadBytesMax)]
    [InlineData("/kvcluster.v1.Kv/Get", RequestLimits.ReadBytesMax)]
    [InlineData("/kvcluster.v1.Kv/Watch", RequestLimits.ReadBytesMax)]
    [InlineData("/kvcluster.admin.v1.Admin/Quarantine", RequestLimits.OperatorBytesMax)]
    [InlineData("/kvcluster.v1.Cluster/WatchShards", RequestLimits.QuestionBytesMax)]
    [InlineData("/grpc.health.v1.Health/Watch", RequestLimits.QuestionBytesMax)]
    [InlineData("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", RequestLimits.QuestionBytesMax)]
    public void Limit_OfAMethod_FitsItsRequests(string method, int bytes) => Assert.Equal(bytes, RequestLimits.BytesMaxOf(method));

    /// <summary>Whoever has seen every shard of a large map names all of them.</summary>
    [Fact]
    public void Limit_OfReads_FitsThePositionsThatTheyMayName()
    {
        var position = new Position
        {
            Shard = uint.MaxValue, Etag = new V1.Etag { Epoch = ulong.MaxValue, Change = ulong.MaxValue },
            AgeUs = ulong.MaxValue, Lineage = ulong.MaxValue
        };
        var longest = UnsafeByteOperations.UnsafeWrap(new byte[KvLimits.KeyBytesMax]);
        var scan = new ScanRequest { Start = longest, End = longest, Prefix = longest, Read = new ReadOptions { Mode = ReadMode.Session } };
        var watch = new WatchRequest { Start = longest, End = longest, Prefix = longest };
        scan.Read.Seen.AddRange(Enumerable.Repeat(position, RequestLimits.PositionsMax));
        watch.After.AddRange(Enumerable.Repeat(position, RequestLimits.PositionsMax));
        Assert.InRange(Math.Max(scan.CalculateSize(), watch.CalculateSize()), 0, RequestLimits.ReadBytesMax);
    }

    private static byte[] Request(int bytes, uint delayMs) =>
        new EchoRequest { Payload = UnsafeByteOperations.UnsafeWrap(new byte[bytes]), DelayMs = delayMs, ReplyBytes = 1 }.ToByteArray();

    private static byte[] Compressed(byte[] payload)
    {
        using var compressed = new MemoryStream();
        using (var gzip = new GZipStream(compressed, CompressionLevel.Optimal))
            gzip.Write(payload);
        return Http2Frame.Message(compressed.ToArray(), flag: 1);
    }

    // All header fields are literal; none is an index into those of earlier calls.
    private static async Task<Http2Connection> ConnectAsync(int port)
    {
        var connection = await Http2Connection.ConnectAsync(port);
        await connection.WriteAsync(new Http2Frame(Http2Frame.Settings, Http2Frame.None, 0, [0, 1, 0, 0, 0, 0]));
        return connection;
    }

    private static async Task SendAsync(Http2Connection connection, int stream, string method, byte[] body, bool end, params (string, string)[] headers)
    {
        await connection.WriteAsync(new Http2Frame(Http2Frame.Headers, Http2Frame.EndHeaders, stream, Http2Frame.HeaderBlock(
        [
            (":method", "POST"), (":scheme", "http"), (":path", $"/kvcluster.testing.Echo/{method}"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc"), .. headers,
        ])));
        await connection.WriteAsync(new Http2Frame(Http2Frame.Data, end ? Http2Frame.EndStream : Http2Frame.None, stream, body));
    }

    private static async Task<StatusCode> StatusAsync(Http2Connection connection) => StatusOf(await EndAsync(connection));

    // Returns the header fields with which the next call ends.
    private static async Task<string> EndAsync(Http2Connection connection)
    {
        while (await connection.ReadAsync() is { } frame)
        {
            Assert.False(frame.Type == Http2Frame.Reset && frame.Payload[3] != 0, "The server reset a call.");
            var text = System.Text.Encoding.Latin1.GetString(frame.Payload);
            if (frame.Type == Http2Frame.Headers && text.Contains(StatusField, StringComparison.Ordinal))
                return text;
        }
        throw new InvalidOperationException("The server closed the connection without a status.");
    }

    private static StatusCode StatusOf(string fields)
    {
        var at = fields.IndexOf(StatusField, StringComparison.Ordinal) + StatusField.Length;
        return (StatusCode)int.Parse(fields.AsSpan(at + 1, fields[at]), System.Globalization.CultureInfo.InvariantCulture);
    }
}
