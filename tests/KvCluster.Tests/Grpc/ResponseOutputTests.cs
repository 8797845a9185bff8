using System.IO.Pipelines;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Tests.Grpc.Proto;
using Microsoft.AspNetCore.Http.Features;
using Grpc.AspNetCore.Server;
using Grpc.AspNetCore.Server.Calls;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Grpc;

/// <summary>What a response leaves in the server's pipe, and when it is flushed.</summary>
public sealed class ResponseOutputTests
{
    private static readonly Marshaller<EchoReply> Marshaller = Marshallers.Create(
        static (message, context) =>
        {
            context.SetPayloadLength(message.CalculateSize());
            message.WriteTo(context.GetBufferWriter());
            context.Complete();
        },
        static context => EchoReply.Parser.ParseFrom(context.PayloadAsReadOnlySequence()));

    private readonly RecordedPipe _pipe = new();
    private readonly ResponseOutput _output;

    public ResponseOutputTests()
    {
        _output = new ServerCall(new CallSettings(new GrpcServiceOptions(), memory: null, unreadable: null, sizes: null, NullLogger.Instance)).Responses;
        _output.Begin(_pipe);
    }

    // Kestrel takes unflushed bytes in the pipe for data to send, finds none, and looks again without a pause. Messages that waited for a flush by
    // the thread pool kept one pool thread busy per connection. With two connections all threads were busy, and the flush waited behind them. A
    // leader was silent for two seconds and was deposed.
    [Theory]
    [InlineData(10, 1)]
    [InlineData(100, 5_000)]
    [InlineData(3, 31_000)]
    [InlineData(3, 200_000)]
    public async Task Write_FromAnyThread_LeavesNothingUnflushedInThePipe(int messages, int bytes)
    {
        var message = new EchoReply { Payload = ByteString.CopyFrom(new byte[bytes]) };
        for (var i = 0; i < messages; i++)
        {
            await _output.WriteAsync(message, Marshaller, moreFollows: i % 2 == 1);
            Assert.Equal(0, _pipe.Unflushed);
        }
        await _output.CompleteAsync();
        // The rest is sent with the trailers.
        await _pipe.FlushAsync();
        Assert.Equal(messages * (5 + message.CalculateSize()), _pipe.Bytes.Count);
        for (var at = 0; at < _pipe.Bytes.Count; at += 5 + message.CalculateSize())
            Assert.Equal(message, EchoReply.Parser.ParseFrom(_pipe.Bytes.Skip(at + 5).Take(message.CalculateSize()).ToArray()));
    }

    [Fact]
    public async Task Write_WhileTheThreadIsLent_IsFlushedWhenItIsReturned()
    {
        var lending = _output.Lend();
        for (var i = 0; i < 10; i++)
            await _output.WriteAsync(new EchoReply { Payload = ByteString.CopyFromUtf8("some") }, Marshaller, moreFollows: false);
        Assert.Equal((0, 0), (_pipe.Flushes, _pipe.Bytes.Count));
        _output.TakeBack(lending);
        Assert.Equal((1, 0), (_pipe.Flushes, _pipe.Unflushed));
        Assert.Equal(10 * (5 + 6), _pipe.Bytes.Count);
    }

    /// <summary>
    /// A server that was stopped released the memory of connections while a flush of a call was queued to the thread pool, and the exception ended the process.
    /// </summary>
    [Fact]
    public async Task QueuedFlush_AfterTheServerReleasedItsMemory_EndsTheCallOnly()
    {
        var message = new EchoReply { Payload = ByteString.CopyFromUtf8("some") };
        _pipe.IsReleased = true;
        RpcException? failure = null;
        await Eventually.TrueAsync(
            () =>
            {
                failure = Record.Exception(() => _output.WriteAsync(message, Marshaller, moreFollows: false).GetAwaiter().GetResult()) as RpcException;
                return failure is not null;
            },
            "the call is told that its caller is gone");
        Assert.Equal(StatusCode.Cancelled, failure!.StatusCode);
        Assert.Empty(_pipe.Bytes);
    }

    /// <summary>A replacement for Kestrel's pipe that keeps what is written and reports what is not flushed.</summary>
    private sealed class RecordedPipe : PipeWriter, IHttpResponseBodyFeature
    {
        private readonly Lock _gate = new();
        private byte[] _block = [];
        private int _unflushed;
        private int _flushes;

        public List<byte> Bytes { get; } = [];

        /// <summary>Whether its memory was released, as that of a connection is when the server has stopped.</summary>
        public bool IsReleased { get; set; }

        public int Unflushed => Volatile.Read(ref _unflushed);

        public int Flushes => Volatile.Read(ref _flushes);

        public PipeWriter Writer => this;

        public Stream Stream => throw new NotSupportedException();

        public override void Advance(int bytes)
        {
            lock (_gate)
            {
                Bytes.AddRange(_block.AsSpan(0, bytes));
                _unflushed += bytes;
            }
        }

        public override Memory<byte> GetMemory(int sizeHint = 0)
        {
            ObjectDisposedException.ThrowIf(IsReleased, this);
            return _block = new byte[Math.Max(sizeHint, 4096)];
        }

        public override Span<byte> GetSpan(int sizeHint = 0) => GetMemory(sizeHint).Span;

        public override ValueTask<FlushResult> FlushAsync(CancellationToken cancellationToken = default)
        {
            lock (_gate)
            {
                _unflushed = 0;
                _flushes++;
            }
            return default;
        }

        public override void CancelPendingFlush()
        {
        }

        public override void Complete(Exception? exception = null)
        {
        }

        public void DisableBuffering() => throw new NotSupportedException();

        public Task StartAsync(CancellationToken cancellationToken = default) => throw new NotSupportedException();

        public Task SendFileAsync(string path, long offset, long? count, CancellationToken cancellationToken = default) => throw new NotSupportedException();

        public Task CompleteAsync() => throw new NotSupportedException();
    }
}
