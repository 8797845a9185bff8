using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.Transport;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using Xunit.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Frames of many shards that wait for one stream.</summary>
public sealed class FrameQueueTests(ITestOutputHelper output)
{
    private const int FrameBodyBytes = 256 << 10;
    private static readonly ByteString Body = UnsafeByteOperations.UnsafeWrap(new byte[FrameBodyBytes]);

    private readonly FrameQueue _lanes = new();

    [Fact]
    public void TryAdd_ShardWithoutCredit_DropsItsRecordsAndNothingElse()
    {
        var added = Fill(shard: 1);
        Assert.InRange(added * (long)FrameBodyBytes, FrameQueue.LaneBytesMax - (2 * FrameBodyBytes), FrameQueue.LaneBytesMax);
        Assert.True(_lanes.TryAdd(Heartbeat(1, 1)));
        Assert.True(_lanes.TryAdd(Heartbeat(2, 1)));
        Assert.Equal(added, Fill(shard: 2));
    }

    [Fact]
    public void TryTake_ShardWithMuchToSend_LeavesEachOtherShardAShareOfTheMessage()
    {
        Fill(shard: 1);
        for (var shard = 2u; shard <= 4; shard++)
            Assert.True(_lanes.TryAdd(Heartbeat(shard, 1)));
        Assert.True(_lanes.TryTake(1 << 20, out var message));
        Assert.Equal([1u, 2u, 3u, 4u], message.Frames.Select(frame => frame.Shard).Distinct().Order());
        Assert.InRange(message.CalculateSize(), 1, (1 << 20) + FrameBodyBytes);
    }

    [Fact]
    public void TryTake_FramesOfAShard_KeepTheirOrder()
    {
        var random = Seeds.Next(output);
        var next = new ulong[6];
        var seen = new ulong[6];
        for (var step = 0; step < 20_000; step++)
        {
            var shard = (uint)random.Next(1, 6);
            if (random.Next(3) > 0)
            {
                if (_lanes.TryAdd(random.Next(4) == 0 ? Records(shard, next[shard] + 1) : Heartbeat(shard, next[shard] + 1)))
                    next[shard]++;
                continue;
            }
            if (!_lanes.TryTake(random.Next(1, 1 << 20), out var message))
                continue;
            foreach (var frame in message.Frames)
                Assert.Equal(++seen[frame.Shard], frame.Epoch);
        }
        while (_lanes.TryTake(1 << 20, out var message))
        {
            foreach (var frame in message.Frames)
                Assert.Equal(++seen[frame.Shard], frame.Epoch);
        }
        Assert.Equal(next, seen);
        Assert.Equal(0, _lanes.Count);
    }

    [Fact]
    public void TryAdd_ReceiverDoesNotKeepUp_IsBoundedOverAllShardsAndLeavesEachAFrame()
    {
        const int Shards = 100;
        var frames = 0L;
        for (var shard = 1u; shard <= Shards; shard++)
        {
            var added = Fill(shard);
            Assert.True(added > 0, $"Shard {shard} has no space at all.");
            frames += added;
        }
        Assert.InRange(frames * FrameBodyBytes, FrameQueue.BytesMax / 2, FrameQueue.BytesMax + (Shards * (long)FrameBodyBytes));
    }

    [Fact]
    public void TryAdd_FramesWithoutBodies_AreBoundedByTheirCount()
    {
        for (var epoch = 1ul; epoch <= FrameQueue.LaneFramesMax; epoch++)
            Assert.True(_lanes.TryAdd(Heartbeat(1, epoch)));
        Assert.False(_lanes.TryAdd(Heartbeat(1, 0)));
        Assert.True(_lanes.TryAdd(Heartbeat(2, 0)));
    }

    [Fact]
    public void TryAdd_FrameLargerThanTheCredit_IsAcceptedInAnEmptyLane()
    {
        var large = Large(shard: 1);
        Assert.True(_lanes.TryAdd(Heartbeat(1, 1)));
        Assert.True(_lanes.TryAdd(large));
        Assert.False(_lanes.TryAdd(large));
        Assert.False(_lanes.TryAdd(Records(1, 2)));
    }

    /// <summary>A leader waited for the acknowledgement of each value of 8 MB before it sent the next one.</summary>
    [Fact]
    public void TryAdd_OfWhatALeaderSendsUnacknowledged_HasRoomForTwoValuesOf8Megabytes()
    {
        var window = new ReplicationOptions().WindowBytes;
        Assert.Equal(FrameQueue.LaneBytesMax, 2 * window);
        var bodyBytes = 8_000_000 + RecordBody.HeaderBytes;
        Assert.True(bodyBytes < window, "The first of them takes the whole window.");
        Assert.True(2 * bodyBytes <= new StoreOptions().RecentBodyBytesMax, "The store reads the first of them again from its disk.");
        Assert.True(_lanes.TryAdd(Large(shard: 1, bodyBytes)));
        Assert.True(_lanes.TryAdd(Large(shard: 1, bodyBytes)));
    }

    /// <summary>A heartbeat waited for the large records of all shards that were before it in turn, and in one message with the last of them.</summary>
    [Fact]
    public void TryTake_LargeFramesOfSeveralShards_GoAlone_AndLetOthersFramesBetweenThem()
    {
        for (var shard = 1u; shard <= 3; shard++)
            Assert.True(_lanes.TryAdd(Large(shard)));
        Assert.True(_lanes.TryAdd(Heartbeat(1, 2)));
        Assert.Equal("1 large", Take());
        // They come while that is being sent.
        Assert.True(_lanes.TryAdd(Heartbeat(4, 1)));
        Assert.Equal("1, 4", Take());
        Assert.True(_lanes.TryAdd(Heartbeat(4, 2)));
        Assert.Equal("2 large", Take());
        Assert.Equal("4", Take());
        Assert.Equal("3 large", Take());
        Assert.False(_lanes.TryTake(1 << 20, out _));
        Assert.Equal((0, 0L), (_lanes.Count, _lanes.Bytes));

        string Take()
        {
            Assert.True(_lanes.TryTake(1 << 20, out var message));
            return string.Join(", ", message.Frames.Select(static frame => frame.Append is null ? $"{frame.Shard}" : $"{frame.Shard} large"));
        }
    }

    [Fact]
    public void Clear_ReturnsAllCredit()
    {
        var added = Fill(shard: 1);
        _lanes.Clear();
        Assert.False(_lanes.TryTake(1 << 20, out _));
        Assert.Equal(added, Fill(shard: 1));
    }

    private static Frame Heartbeat(uint shard, ulong epoch) => new() { Shard = shard, Epoch = epoch, Heartbeat = new Heartbeat() };

    private static Frame Records(uint shard, ulong epoch) => new() { Shard = shard, Epoch = epoch, Append = new Append { Bodies = { Body } } };

    private static Frame Large(uint shard, int bodyBytes = 20 << 20) =>
        new() { Shard = shard, Append = new Append { Bodies = { UnsafeByteOperations.UnsafeWrap(new byte[bodyBytes]) } } };

    private int Fill(uint shard)
    {
        var added = 0;
        while (_lanes.TryAdd(Records(shard, 1)))
            added++;
        return added;
    }
}
