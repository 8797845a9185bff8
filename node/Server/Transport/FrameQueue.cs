// Frames that wait for one stream, in one lane per shard. Any thread adds and never waits; the stream's sender takes. Lanes take turns, each with a share of
// the message, so that a shard that sends much, or whose lane is full, neither delays other shards' heartbeats nor causes their frames to be dropped.
using System.Diagnostics.CodeAnalysis;
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;

namespace KvCluster.Node.Transport;

/// <summary>A bounded queue of frames that is fair between shards.</summary>
internal sealed class FrameQueue
{
    /// <summary>
    /// A shard's credit: the bytes of its frames that may wait. Twice what a leader sends a follower without an acknowledgement, because a window may be
    /// sent again while the first copy still waits. The shard of a slow follower never has more here.
    /// </summary>
    public const long LaneBytesMax = 8 << 20;

    /// <summary>Number of frames of a shard that may wait: those of a second at its busiest. Bounds frames without bodies.</summary>
    public const int LaneFramesMax = 4_096;

    /// <summary>Bytes of all shards. Beyond this the other side does not keep up, and each lane has space for one frame only.</summary>
    public const long BytesMax = 64 << 20;

    /// <summary>A lane's share of a message: one full frame of records.</summary>
    private const long ShareBytes = 256 << 10;

    private readonly Lock _lock = new();
    private readonly Dictionary<ShardId, Lane> _lanes = [];
    private readonly Queue<Lane> _turns = new();
    private long _bytes;
    private int _count;

    /// <summary>Number of waiting frames.</summary>
    public int Count => Volatile.Read(ref _count);

    /// <summary>Bytes of the waiting frames.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Adds a frame at the end of its shard's lane. False if the lane has no space.</summary>
    public bool TryAdd(Frame frame)
    {
        var bytes = FrameBytes.Of(frame);
        lock (_lock)
        {
            if (!_lanes.TryGetValue(frame.ShardId, out var lane))
                _lanes.Add(frame.ShardId, lane = new Lane());
            if (!HasRoomLocked(lane, bytes))
                return false;
            if (lane.Frames.Count == 0)
                _turns.Enqueue(lane);
            lane.Frames.Enqueue((frame, bytes));
            lane.Bytes += bytes;
            _bytes += bytes;
            _count++;
            return true;
        }
    }

    /// <summary>Takes frames up to about this many bytes, a share from each lane in turn, in each lane's order. False if none waits.</summary>
    public bool TryTake(long bytesMax, [NotNullWhen(true)] out PeerMessage? message)
    {
        message = null;
        lock (_lock)
        {
            for (var left = bytesMax; left > 0 && _turns.TryDequeue(out var lane);)
            {
                message ??= new PeerMessage();
                left -= MoveShareLocked(lane, Math.Min(left, ShareBytes), message);
                if (lane.Frames.Count > 0)
                    _turns.Enqueue(lane);
            }
        }
        return message is not null;
    }

    /// <summary>Drops all waiting frames.</summary>
    public void Clear()
    {
        lock (_lock)
        {
            _lanes.Clear();
            _turns.Clear();
            (_bytes, _count) = (0, 0);
        }
    }

    // Frames without bodies (heartbeats, acknowledgements, votes) need no credit. A frame larger than the credit may enter an empty lane.
    private bool HasRoomLocked(Lane lane, long bytes)
    {
        Invariant.CheckHeld(_lock);
        return lane.Frames.Count < LaneFramesMax
        && (bytes <= FrameBytes.OverheadBytes || lane.Bytes <= lane.Frames.Count * FrameBytes.OverheadBytes
            || (lane.Bytes + bytes <= LaneBytesMax && _bytes + bytes <= BytesMax));
    }

    private long MoveShareLocked(Lane lane, long shareBytes, PeerMessage message)
    {
        Invariant.CheckHeld(_lock);
        var moved = 0L;
        while (moved < shareBytes && lane.Frames.TryDequeue(out var next))
        {
            message.Frames.Add(next.Frame);
            lane.Bytes -= next.Bytes;
            _bytes -= next.Bytes;
            _count--;
            moved += next.Bytes;
        }
        return moved;
    }

    private sealed class Lane
    {
        public Queue<(Frame Frame, long Bytes)> Frames { get; } = new();

        public long Bytes { get; set; }
    }
}
