using System.IO.Pipelines;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Tests.Grpc.Proto;
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

    /// <summary>Two hundred callers that read nothing each had a copy of one value of 8 MiB in the pipe of their stream, which no budget counted.</summary>
    [Fact]
    public async Task Write_OfALargeEncodedMessage_HasNoMoreInThePipeThanAPiece()
    {
        const int Pieces = 17;
        var message = new EncodedBytes((1 << 20) + 7);
        _pipe.IsHeld = true;
        var writing = _output.WriteAsync(message, EncodedBytes.Marshaller, moreFollows: false);
        var next = _output.WriteAsync(new EchoReply { Payload = ByteString.CopyFromUtf8("next") }, Marshaller, moreFollows: false);
        for (var piece = 1; piece <= Pieces; piece++)
        {
            await Eventually.TrueAsync(() => _pipe.IsWaiting, "a piece is in the pipe");
            Assert.InRange(_pipe.Unread, 1, (64 << 10) + 5);
            Assert.Equal((false, false, 0), (writing.IsCompleted, next.IsCompleted, message.Returns));
            Assert.True(_output.LeftPartialFrame);
            _pipe.IsHeld = piece < Pieces;
            _pipe.Read(default);
        }
        await writing.WaitAsync(Eventually.Limit);
        Assert.Equal(1, message.Returns);
        Assert.False(_output.LeftPartialFrame);
        await next.WaitAsync(Eventually.Limit);
        await _output.CompleteAsync();
        Assert.Equal((byte[])[0, 0, 16, 0, 7, .. message.Memory.ToArray()], _pipe.Bytes.Take(5 + message.Memory.Length).ToArray());
        Assert.Equal("next", EchoReply.Parser.ParseFrom(_pipe.Bytes.Skip(5 + message.Memory.Length + 5).ToArray()).Payload.ToStringUtf8());
    }

    [Fact]
    public async Task Write_OfALargeEncodedMessage_WhoseCallerGoes_ReturnsItAndLeavesAPart()
    {
        var message = new EncodedBytes(1 << 20);
        _pipe.IsHeld = true;
        var writing = _output.WriteAsync(message, EncodedBytes.Marshaller, moreFollows: false);
        var ended = _output.CompleteAsync();
        Assert.False(ended.IsCompleted);
        _pipe.Read(new FlushResult(isCanceled: false, isCompleted: true));
        await Task.WhenAll(writing, ended).WaitAsync(Eventually.Limit);
        Assert.Equal(1, message.Returns);
        // Its status cannot follow, and the stream is reset.
        Assert.True(_output.LeftPartialFrame);
        Assert.Equal(5 + (64 << 10), _pipe.Bytes.Count);
    }

    [Fact]
    public void Write_OfAnEncodedMessageBeyondTheLimit_WritesNothing()
    {
        var output = new ServerCall(new CallSettings(new GrpcServiceOptions { MaxSendMessageSize = 1 << 19 }, memory: null, unreadable: null, sizes: null, NullLogger.Instance)).Responses;
        output.Begin(_pipe);
        var failure = Assert.Throws<RpcException>(() => { _ = output.WriteAsync(new EncodedBytes(1 << 20), EncodedBytes.Marshaller, moreFollows: false); });
        Assert.Equal(StatusCode.ResourceExhausted, failure.StatusCode);
        Assert.Empty(_pipe.Bytes);
        Assert.False(output.LeftPartialFrame);
    }
}
