using System.Buffers.Binary;
using System.IO.Compression;
using System.Net;
using System.Net.Http.Headers;
using System.Runtime.InteropServices;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Client;

/// <summary>
/// A router with 200 watchers of a value of 8 MiB grew by 821 MB, because gRPC's client package had an array of 16 MiB for each message and kept it.
/// </summary>
public sealed class LargeMessagesTests
{
    private const int LargeBytes = 3 << 20;

    private static readonly Method<WatchRequest, StreamMessage<WatchResponse>> Watch = new(
        MethodType.ServerStreaming,
        Kv.Descriptor.FullName,
        "Watch",
        new Marshaller<WatchRequest>(static request => request.ToByteArray(), static _ => throw new NotSupportedException()),
        StreamMessage<WatchResponse>.Marshaller);

    [Fact]
    public async Task LargeMessage_IsReceivedIntoTheArrayThatItStaysIn_AndInItsOrder()
    {
        WatchResponse[] sent = [Message(10), Message(LargeBytes), new(), Message(300 << 10), Message(200 << 10), Message(LargeBytes), Message(0)];
        var body = new Body([.. sent.Select(static one => Frame(one.ToByteArray()))]);
        using var channel = Open(body);
        using var call = channel.Calls().Intercept(LargeMessages.Instance).AsyncServerStreamingCall(Watch, null, default, new WatchRequest());
        foreach (var message in sent)
        {
            Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            var received = call.ResponseStream.Current.Encode();
            Assert.Equal(message, WatchResponse.Parser.ParseFrom(received.Written));
            Assert.True(MemoryMarshal.TryGetArray(received.Memory, out var array));
            Assert.Equal(received.Count > MessageBytes.PooledBytesMax, array.Array == body.LastArray);
            received.Return();
        }
        Assert.False(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        Assert.Equal(StatusCode.OK, call.GetStatus().StatusCode);
    }

    /// <summary>As a client and a router receive what their calls are answered. The limit of the channel sees only what the package receives.</summary>
    [Theory]
    [InlineData(2 * LargeBytes, StatusCode.OK)]
    [InlineData(LargeBytes, StatusCode.ResourceExhausted)]
    public async Task LargeReplies_OfAnExchange_AreReceivedUpToALimit(int bytesMax, StatusCode expected)
    {
        var sent = new ExchangeResponse { Replies = { new Reply { Id = 7, Response = UnsafeByteOperations.UnsafeWrap(new byte[LargeBytes]) } } };
        var frame = Frame(sent.ToByteArray());
        using var channel = Open(new Body([frame, frame, Frame([])]), bytesMax, packageBytesMax: LargeBytes / 2);
        using var call = channel.Calls().Intercept(LargeMessages.Instance).AsyncDuplexStreamingCall(CallStream.Exchange, null, default);
        if (expected != StatusCode.OK)
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            Assert.Equal(expected, failure.StatusCode);
            return;
        }
        foreach (var message in (ExchangeResponse[])[sent, sent, new()])
        {
            Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            Assert.Equal(message, call.ResponseStream.Current);
        }
    }

    /// <summary>As for calls of operators, which share the channels' handler.</summary>
    [Fact]
    public async Task LargeMessage_OfACallWithoutAPlaceForIt_ComesFromThePackage()
    {
        var sent = Message(LargeBytes);
        using var channel = Open(new Body([Frame(sent.ToByteArray())]));
        using var call = channel.Calls().AsyncServerStreamingCall(Watch, null, default, new WatchRequest());
        Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        Assert.Equal(sent, call.ResponseStream.Current.Decode());
    }

    [Fact]
    public async Task LargeMessage_ThatIsCompressed_IsDecompressed()
    {
        WatchResponse[] sent = [Message(LargeBytes), Message(LargeBytes)];
        var body = new Body([Frame(Compressed(sent[0].ToByteArray()), isCompressed: true), Frame(sent[1].ToByteArray())]);
        using var channel = Open(body);
        using var call = channel.Calls().Intercept(LargeMessages.Instance).AsyncServerStreamingCall(Watch, null, default, new WatchRequest());
        foreach (var message in sent)
        {
            Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            Assert.Equal(message, call.ResponseStream.Current.Decode());
        }
    }

    [Theory]
    [InlineData(3)]
    [InlineData(5)]
    [InlineData(LargeBytes)]
    public async Task LargeMessage_WhoseStreamEndsBeforeItsEnd_IsAFailure(int receivedBytes)
    {
        using var channel = Open(new Body([Frame(Message(LargeBytes).ToByteArray())[..receivedBytes]]));
        using var call = channel.Calls().Intercept(LargeMessages.Instance).AsyncServerStreamingCall(Watch, null, default, new WatchRequest());
        await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
    }

    [Fact]
    public async Task LargeMessage_WhoseReaderCancels_IsNotAwaited()
    {
        using var channel = Open(new Body([Frame(Message(LargeBytes).ToByteArray())[..LargeBytes]]) { HasMore = true });
        using var call = channel.Calls().Intercept(LargeMessages.Instance).AsyncServerStreamingCall(Watch, null, default, new WatchRequest());
        using var stop = new CancellationTokenSource();
        var reading = call.ResponseStream.MoveNext(stop.Token);
        await stop.CancelAsync();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => reading.WaitAsync(Eventually.Limit))).StatusCode);
    }

    private static GrpcChannel Open(Body body, int bytesMax = int.MaxValue, int? packageBytesMax = null) => GrpcChannel.ForAddress(
        "http://127.0.0.1:1",
        new GrpcChannelOptions { HttpHandler = new LargeMessageHandler(new Answers(body), bytesMax), MaxReceiveMessageSize = packageBytesMax });

    private static WatchResponse Message(int valueBytes)
    {
        var value = new byte[valueBytes];
        new Random(valueBytes).NextBytes(value);
        return new WatchResponse { Events = { new Event { Value = UnsafeByteOperations.UnsafeWrap(value) } } };
    }

    private static byte[] Frame(byte[] payload, bool isCompressed = false)
    {
        var frame = new byte[5 + payload.Length];
        frame[0] = isCompressed ? (byte)1 : (byte)0;
        BinaryPrimitives.WriteInt32BigEndian(frame.AsSpan(1), payload.Length);
        payload.CopyTo(frame, 5);
        return frame;
    }

    private static byte[] Compressed(byte[] bytes)
    {
        using var compressed = new MemoryStream();
        using (var gzip = new GZipStream(compressed, CompressionLevel.Fastest))
            gzip.Write(bytes);
        return compressed.ToArray();
    }

    /// <summary>Answers a call with a body.</summary>
    private sealed class Answers(Body body) : HttpMessageHandler
    {
        protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            var response = new HttpResponseMessage(HttpStatusCode.OK)
            {
                Version = HttpVersion.Version20,
                RequestMessage = request,
                Content = new StreamContent(body),
            };
            response.Content.Headers.ContentType = new MediaTypeHeaderValue("application/grpc");
            response.Headers.Add("grpc-encoding", "gzip");
            response.TrailingHeaders.Add("grpc-status", "0");
            return Task.FromResult(response);
        }
    }

    /// <summary>A body that arrives in pieces.</summary>
    private sealed class Body(byte[][] frames) : MemoryStream([.. frames.SelectMany(static one => one)], writable: false)
    {
        private const int PieceBytes = 100_000;

        /// <summary>More of it is awaited.</summary>
        public bool HasMore { get; init; }

        /// <summary>The array that the last large read was into.</summary>
        public byte[]? LastArray { get; private set; }

        public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            await Task.Yield();
            if (buffer.Length > PieceBytes && MemoryMarshal.TryGetArray<byte>(buffer, out var array))
                LastArray = array.Array;
            if (HasMore && Position == Length)
                await Task.Delay(Timeout.Infinite, cancellationToken);
            return Read(buffer.Span[..Math.Min(buffer.Length, PieceBytes)]);
        }
    }
}
