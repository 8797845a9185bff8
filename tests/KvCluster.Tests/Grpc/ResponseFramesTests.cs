using Grpc.Net.Client.Calls;
using Grpc.Shared;

namespace KvCluster.Tests.Grpc;

/// <summary>
/// What a stream keeps of what it has received. After a value of 8 MiB each of many open streams kept an array of 16 MiB, a power of two, until it ended, and the
/// shared pool kept it after that.
/// </summary>
public sealed class ResponseFramesTests
{
    private const int ReadBytes = 32 << 10;

    [Theory]
    [InlineData(300_000)]
    [InlineData(8 << 20)]
    public void LargeMessage_ThatWasTaken_LeavesNoLargeArray(int bytes)
    {
        var frames = new ResponseFrames();
        Fill(frames, bytes);
        Assert.True(frames.TryTake(int.MaxValue, out var payload, out _));
        Assert.Equal(bytes, payload.Length);
        frames.ReleaseLarge();
        Assert.InRange(frames.Room(ReadBytes, int.MaxValue).Length, ReadBytes, CallBuffers.PooledBytesMax);
    }

    /// <summary>Otherwise the beginning of the next message, for which its reader may have to wait, would keep the array.</summary>
    [Fact]
    public void Room_OfALargeMessage_EndsWithIt()
    {
        var frames = new ResponseFrames();
        Begin(frames, 1 << 20);
        Assert.Equal(1 << 20, frames.Room(ReadBytes, int.MaxValue).Length);
        frames.Filled(1_000);
        Assert.Equal((1 << 20) - 1_000, frames.Room(ReadBytes, int.MaxValue).Length);
    }

    [Fact]
    public void SmallMessages_AreReadTogetherIntoTheSameArray()
    {
        var frames = new ResponseFrames();
        Fill(frames, 100_000);
        Assert.True(frames.TryTake(int.MaxValue, out _, out _));
        frames.ReleaseLarge();
        Assert.InRange(frames.Room(ReadBytes, int.MaxValue).Length, 100_000, CallBuffers.PooledBytesMax);
    }

    private static void Begin(ResponseFrames frames, int bytes)
    {
        FrameFormat.WriteHeader(frames.Room(ReadBytes, int.MaxValue).Span, bytes);
        frames.Filled(FrameFormat.HeaderBytes);
    }

    private static void Fill(ResponseFrames frames, int bytes)
    {
        Begin(frames, bytes);
        for (var left = bytes; left > 0;)
        {
            var count = Math.Min(left, frames.Room(ReadBytes, int.MaxValue).Length);
            frames.Filled(count);
            left -= count;
        }
    }
}
