// Frames that wait for one stream, a lane for each shard. Any thread adds, never waiting; the stream's sender takes. A lane takes a share of each message
// in turn, so that a shard with much to send, or whose lane is full, delays no other's heartbeats and drops no other's frames.
using System.Diagnostics.CodeAnalysis;
using KvCluster.Node.Shards;
using KvCluster.V1;

namespace KvCluster.Node.Transport;

/// <summary>A bounded queue of frames that is fair to the shards.</summary>
internal sealed class FrameLanes
{
    /// <summary>
    /// A shard's credit: bytes of its that may wait. Twice what a leader sends a follower before it is acknowledged, as a window may be sent again while
    /// the first still waits; a slow follower's shard never has more here.
    /// </summary>
    public const long LaneBytesMax = 8 << 20;

    /// <summary>Frames of a shard that wait: those of a second of its busiest moments. Bounds what has no bodies.</summary>
    public const int LaneFramesMax = 4_096;

    /// <summary>Bytes of all shards; beyond that the other side does not keep up, and a lane has room for one frame only.</summary>
    public const long BytesMax = 64 << 20;

    /// <summary>A lane's share of a message: one full frame of records.</summary>
    private const long ShareBytes = 256 << 10;

    private readonly Lock _lock = new();
    private readonly Dictionary<uint, Lane> _lanes = [];
    private readonly Queue<Lane> _turns = new();
    private long _bytes;
    private int _count;

    /// <summary>Frames that wait.</summary>
    public int Count => Volatile.Read(ref _count);

    /// <summary>Their bytes.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>Adds a frame to its shard's lane, behind what waits there; false: it has no room.</summary>
    public bool TryAdd(Frame frame)
    {
        var bytes = FrameBytes.Of(frame);
        lock (_lock)
        {
            if (!_lanes.TryGetValue(frame.Shard, out var lane))
                _lanes.Add(frame.Shard, lane = new Lane());
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

    /// <summary>Takes frames until they have so many bytes, from each lane a share in turn and in the lane's order; null: none waits.</summary>
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

    /// <summary>Drops everything that waits.</summary>
    public void Clear()
    {
        lock (_lock)
        {
            _lanes.Clear();
            _turns.Clear();
            (_bytes, _count) = (0, 0);
        }
    }

    // What has no bodies, heartbeats, acknowledgements and votes, takes no credit. A frame larger than the credit goes into an empty lane.
    private bool HasRoomLocked(Lane lane, long bytes) =>
        lane.Frames.Count < LaneFramesMax
        && (bytes <= FrameBytes.OverheadBytes || lane.Bytes <= lane.Frames.Count * FrameBytes.OverheadBytes
            || (lane.Bytes + bytes <= LaneBytesMax && _bytes + bytes <= BytesMax));

    private long MoveShareLocked(Lane lane, long shareBytes, PeerMessage message)
    {
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
