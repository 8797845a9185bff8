using System.Buffers;
using System.IO.Pipelines;
using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>What leaves as the response of a call.</summary>
public sealed class ResponseBodyTests
{
    private readonly RecordedPipe _pipe = new() { IsHeld = true };

    /// <summary>Two hundred callers that read nothing each had a copy of one value of 8 MiB in the pipe of their stream, which no budget counted.</summary>
    [Fact]
    public async Task Flush_OfALargeEncodedMessage_HasNoMoreInThePipeThanAPiece()
    {
        const int Pieces = 17;
        var message = new EncodedBytes((1 << 20) + 7);
        var body = new ResponseBody(_pipe, leaving: null, reset: null);
        WriteHeader(body, message.Memory.Length);
        Assert.True(body.TryTake(message));
        var flushing = body.FlushAsync().AsTask();
        for (var piece = 1; piece <= Pieces; piece++)
        {
            await Eventually.TrueAsync(() => _pipe.IsWaiting, "a piece is in the pipe");
            Assert.InRange(_pipe.Unread, 1, (64 << 10) + 5);
            Assert.Equal((false, 0, true), (flushing.IsCompleted, message.Returns, body.LeftPartialMessage));
            _pipe.Read(default);
        }
        await flushing.WaitAsync(Eventually.Limit);
        Assert.Equal((1, false), (message.Returns, body.LeftPartialMessage));
        Assert.Equal((byte[])[0, 0, 16, 0, 7, .. message.Memory.ToArray()], _pipe.Bytes.ToArray());
        body.End();
        Assert.Equal(1, message.Returns);
    }

    [Fact]
    public async Task Flush_OfALargeEncodedMessage_WhoseCallerGoes_ReturnsItAndLeavesAPart()
    {
        var message = new EncodedBytes(1 << 20);
        var body = new ResponseBody(_pipe, leaving: null, reset: null);
        WriteHeader(body, message.Memory.Length);
        Assert.True(body.TryTake(message));
        var flushing = body.FlushAsync().AsTask();
        _pipe.Read(new FlushResult(isCanceled: false, isCompleted: true));
        Assert.True((await flushing.WaitAsync(Eventually.Limit)).IsCompleted);
        await body.DrainAsync();
        Assert.Equal((1, true), (message.Returns, body.LeftPartialMessage));
        Assert.Equal(5 + (64 << 10), _pipe.Bytes.Count);
    }

    [Fact]
    public void EncodedMessage_ThatIsNotFlushed_IsReturnedWithTheCall()
    {
        var message = new EncodedBytes(1 << 20);
        var body = new ResponseBody(_pipe, leaving: null, reset: null);
        WriteHeader(body, message.Memory.Length);
        Assert.True(body.TryTake(message));
        body.End();
        Assert.Equal(1, message.Returns);
    }

    [Fact]
    public void SmallEncodedMessage_IsNotTaken() => Assert.False(new ResponseBody(_pipe, leaving: null, reset: null).TryTake(new EncodedBytes(256 << 10)));

    [Fact]
    public async Task OnlyResponse_ThatIsNotRead_IsCountedUntilItIs()
    {
        var leaving = new HeldMessages(1 << 20);
        var body = new ResponseBody(_pipe, leaving, reset: null);
        WriteHeader(body, 100_000);
        body.Write(new byte[100_000]);
        Assert.True(await body.LeavesAsync(isPatient: true));
        Assert.Equal(100_000, leaving.Bytes);
        var drained = body.DrainAsync().AsTask();
        Assert.False(drained.IsCompleted);
        _pipe.Read(default);
        await drained.WaitAsync(Eventually.Limit);
        body.End();
        Assert.Equal(0, leaving.Bytes);
    }

    [Fact]
    public void OnlyResponse_WithoutRoom_IsRefusedBeforeAnythingIsWritten()
    {
        var body = new ResponseBody(_pipe, new HeldMessages(64 << 10), reset: null);
        Assert.Equal(StatusCode.Unavailable, Assert.Throws<RpcException>(() => WriteHeader(body, 100_000)).StatusCode);
        Assert.Empty(_pipe.Bytes);
        Assert.False(body.LeftPartialMessage);
    }

    [Fact]
    public async Task FailedStream_ThatIsNotRead_IsWaitedForASecond()
    {
        var body = new ResponseBody(_pipe, leaving: null, reset: null);
        WriteHeader(body, 10);
        body.Write(new byte[10]);
        _ = body.FlushAsync();
        Assert.False(await body.LeavesAsync(isPatient: false));
        _pipe.Read(default);
        await body.DrainAsync();
        Assert.True(await body.LeavesAsync(isPatient: false));
    }

    private static void WriteHeader(ResponseBody body, int length)
    {
        FrameFormat.WriteHeader(body.GetSpan(FrameFormat.HeaderBytes), length);
        body.Advance(FrameFormat.HeaderBytes);
    }
}
