using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Client;

/// <summary>What failures of gRPC's client package mean to our callers.</summary>
public sealed class MappedFailuresTests
{
    [Theory]
    [InlineData("No grpc-status found on response.", StatusCode.Unknown)]
    [InlineData("Bad gRPC response. Invalid content-type value: text/html", StatusCode.Unknown)]
    [InlineData("Call canceled by the client.", StatusCode.Cancelled)]
    public void CancelledStatus_OfThePackage_IsACancellationOnlyIfSomebodyCancelled(string text, StatusCode expected) =>
        Assert.Equal(expected, MappedFailures.Map(new Status(StatusCode.Cancelled, text)).StatusCode);

    /// <summary>The package reports INTERNAL, as if the server had failed.</summary>
    [Fact]
    public void KeepAliveTimeout_IsALostConnection()
    {
        var cause = new HttpRequestException("", new HttpProtocolException(0, "The server did not answer a ping.", innerException: null));
        Assert.Equal(StatusCode.Unavailable, MappedFailures.Map(new Status(StatusCode.Internal, "", cause)).StatusCode);
    }

    /// <summary>The exception is an IOException, so the package reports UNAVAILABLE, and callers repeated what can never be read.</summary>
    [Fact]
    public void AnswerThatIsNoMessage_IsNotALostConnection()
    {
        var cause = Assert.ThrowsAny<InvalidProtocolBufferException>(static () => EchoReply.Parser.ParseFrom((byte[])[0xff, 0xff]));
        Assert.Equal(StatusCode.Internal, MappedFailures.Map(new Status(StatusCode.Unavailable, "", cause)).StatusCode);
    }

    /// <summary>The package reports CANCELLED, with HttpClient's exception in one of its own.</summary>
    [Fact]
    public void ConnectionThatTakesTooLong_IsNoCancellation()
    {
        var cause = new OperationCanceledException("", new TaskCanceledException("", new TimeoutException("It took too long.")));
        Assert.Equal(StatusCode.Unavailable, MappedFailures.Map(new Status(StatusCode.Cancelled, "", cause)).StatusCode);
        Assert.Equal(StatusCode.Cancelled, MappedFailures.Map(new Status(StatusCode.Cancelled, "", new OperationCanceledException())).StatusCode);
    }

    /// <summary>A silent node was listed with an empty error, and so as one that had answered.</summary>
    [Fact]
    public void DeadlineThatPassed_HasAText()
    {
        Assert.NotEmpty(MappedFailures.Map(new Status(StatusCode.DeadlineExceeded, "")).Detail);
        Assert.Equal("late", MappedFailures.Map(new Status(StatusCode.DeadlineExceeded, "late")).Detail);
    }

    /// <summary>
    /// A connection was lost after the response had begun and before the package had the stream to write to. The first write never ended, because nothing was
    /// read before it.
    /// </summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task FirstWrite_OfALostConnection_Ends(bool isAnswered)
    {
        var lost = new LostCall(isAnswered);
        var calls = new MappedFailures(patience: TimeSpan.FromMilliseconds(50));
        using var call = calls.AsyncDuplexStreamingCall(new ClientInterceptorContext<byte[], byte[]>(LostCall.Method, null, default), _ => lost.ToCall());
        var failure = await Assert.ThrowsAsync<RpcException>(() => call.RequestStream.WriteAsync([]).WaitAsync(Eventually.Limit));
        Assert.Equal(StatusCode.Unavailable, failure.StatusCode);
        Assert.Equal(isAnswered, lost.IsDisposed);
    }

    /// <summary>A reader may take its time. The first write was sent at once, and the second one was taken for it and given up.</summary>
    [Fact]
    public async Task LaterWrite_WhoseReaderWaits_IsNotGivenUp()
    {
        var lost = new LostCall(isAnswered: true) { WritesAtOnce = 1 };
        var calls = new MappedFailures(patience: TimeSpan.Zero);
        using var call = calls.AsyncDuplexStreamingCall(new ClientInterceptorContext<byte[], byte[]>(LostCall.Method, null, default), _ => lost.ToCall());
        await call.RequestStream.WriteAsync([]);
        var writing = call.RequestStream.WriteAsync([]);
        await call.ResponseStream.MoveNext(CancellationToken.None);
        await Task.Yield();
        Assert.False(writing.IsCompleted);
        lost.EndWrite();
        await writing.WaitAsync(Eventually.Limit);
        Assert.False(lost.IsDisposed);
    }

    [Fact]
    public async Task FirstRead_Cancelled_EndsTheCall()
    {
        await using var server = await EchoServer.StartAsync();
        using var call = server.Client.Duplex();
        using var stop = new CancellationTokenSource();
        var reading = call.ResponseStream.MoveNext(stop.Token);
        await stop.CancelAsync();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => reading.WaitAsync(Eventually.Limit))).StatusCode);
    }

    [Fact]
    public void StatusOfTheServer_IsKept()
    {
        var status = new Status(StatusCode.Internal, "It failed.");
        Assert.Equal(status, MappedFailures.Map(status));
    }

    [Fact]
    public async Task Calls_OfADisposedChannel_EndAsCancelled()
    {
        var channel = GrpcChannel.ForAddress("http://127.0.0.1:1");
        var client = new Echo.EchoClient(channel.Calls());
        channel.Dispose();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(async () => await client.UnaryAsync(new EchoRequest()))).StatusCode);
        using var stream = client.ServerStream(new EchoRequest());
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => stream.ResponseStream.MoveNext(CancellationToken.None))).StatusCode);
        using var duplex = client.Duplex();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => duplex.RequestStream.WriteAsync(new EchoRequest()))).StatusCode);
    }

    [Fact]
    public async Task Write_AfterTheChannelWasDisposed_EndsAsCancelled()
    {
        await using var server = await EchoServer.StartAsync();
        var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{server.Port}");
        using var duplex = new Echo.EchoClient(channel.Calls()).Duplex();
        await duplex.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await duplex.ResponseStream.MoveNext(CancellationToken.None));
        channel.Dispose();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => duplex.RequestStream.WriteAsync(new EchoRequest()))).StatusCode);
        await duplex.RequestStream.CompleteAsync();
    }

    /// <summary>A call of the package whose request is never sent. Its end is seen by a read only, or, once it was answered, by nobody.</summary>
    private sealed class LostCall(bool isAnswered) : IClientStreamWriter<byte[]>, IAsyncStreamReader<byte[]>
    {
        private static readonly Marshaller<byte[]> Bytes = new(static bytes => bytes, static bytes => bytes);

        private readonly TaskCompletionSource _written = new(TaskCreationOptions.RunContinuationsAsynchronously);

        public static Method<byte[], byte[]> Method { get; } = new(MethodType.DuplexStreaming, "lost", "Lost", Bytes, Bytes);

        public WriteOptions? WriteOptions { get; set; }

        /// <summary>How many requests are sent at once, before one that is not.</summary>
        public int WritesAtOnce { private get; set; }

        public byte[] Current => [];

        public bool IsDisposed { get; private set; }

        public AsyncDuplexStreamingCall<byte[], byte[]> ToCall() => new(
            this, this, Task.FromResult(new Metadata()), static () => Status.DefaultCancelled, static () => new Metadata(), () => IsDisposed = true);

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            await Task.Yield();
            if (isAnswered)
                return true;
            var failure = new RpcException(new Status(StatusCode.Unavailable, "The connection was lost."));
            _written.TrySetException(failure);
            throw failure;
        }

        public Task WriteAsync(byte[] message) => WritesAtOnce-- > 0 ? Task.CompletedTask : _written.Task;

        public void EndWrite() => _written.SetResult();

        public Task CompleteAsync() => Task.CompletedTask;
    }
}
