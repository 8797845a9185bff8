// Frames that wait for one stream, in one lane per shard. Any thread adds and never waits; the stream's sender takes. Lanes take turns, each with a share of
// the message, so that a shard that sends much, or whose lane is full, neither delays other shards' heartbeats nor causes their frames to be dropped. A frame
// is read when all of its message has come, so a message has at most a mebibyte and the rest of a frame, or one large frame alone. What other shards have to
// send goes between two large ones, so a heartbeat waits for one of another shard at most: 17 MiB, which take 0.15 s at a gigabit a second.
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
    public const long LaneBytesMax = 16 << 20;

    /// <summary>Number of frames of a shard that may wait: those of a second at its busiest. Bounds frames without bodies.</summary>
    public const int LaneFramesMax = 4_096;

    /// <summary>Bytes of all shards. Beyond this the other side does not keep up, and each lane has space for one frame only.</summary>
    public const long BytesMax = 64 << 20;

    /// <summary>A lane's share of a message: one full frame of records.</summary>
    private const long ShareBytes = 256 << 10;

    /// <summary>A frame of more bytes has one record, of a large write, which is not divided. It is a message of its own.</summary>
    private const long LargeFrameBytes = 1 << 20;

    private readonly Lock _lock = new();
    private readonly Dictionary<ShardId, Lane> _lanes = [];

    // Lanes with frames, by whether the next one is large.
    private readonly Queue<Lane> _turns = new();
    private readonly Queue<Lane> _largeTurns = new();

    /// <summary>Whether the last message had no large frame, so that one may follow.</summary>
    private bool _isLargeNext;
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
            lane.Frames.Enqueue((frame, bytes));
            if (lane.Frames.Count == 1)
                AwaitTurnLocked(lane);
            lane.Bytes += bytes;
            _bytes += bytes;
            _count++;
            return true;
        }
    }

    /// <summary>
    /// Takes frames up to about this many bytes, a share from each lane in turn, or one large frame, in each lane's order. False if none waits.
    /// </summary>
    public bool TryTake(long bytesMax, [NotNullWhen(true)] out PeerMessage? message)
    {
        message = null;
        lock (_lock)
        {
            var isLarge = _largeTurns.Count > 0 && (_isLargeNext || _turns.Count == 0);
            if (isLarge)
                message = TakeLargeLocked();
            else if (_turns.Count > 0)
                message = TakeSharesLocked(bytesMax);
            _isLargeNext = message is not null && !isLarge;
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
            _largeTurns.Clear();
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

    private void AwaitTurnLocked(Lane lane)
    {
        Invariant.CheckHeld(_lock);
        if (lane.Frames.TryPeek(out var next))
            (next.Bytes > LargeFrameBytes ? _largeTurns : _turns).Enqueue(lane);
    }

    private PeerMessage TakeLargeLocked()
    {
        Invariant.CheckHeld(_lock);
        var (lane, message) = (_largeTurns.Dequeue(), new PeerMessage());
        MoveLocked(lane, message);
        AwaitTurnLocked(lane);
        return message;
    }

    private PeerMessage TakeSharesLocked(long bytesMax)
    {
        Invariant.CheckHeld(_lock);
        var message = new PeerMessage();
        for (var left = bytesMax; left > 0 && _turns.TryDequeue(out var lane);)
        {
            var (shareBytes, moved) = (Math.Min(left, ShareBytes), 0L);
            while (moved < shareBytes && lane.Frames.TryPeek(out var next) && next.Bytes <= LargeFrameBytes)
                moved += MoveLocked(lane, message);
            left -= moved;
            AwaitTurnLocked(lane);
        }
        return message;
    }

    // Returns the bytes of the frame.
    private long MoveLocked(Lane lane, PeerMessage message)
    {
        Invariant.CheckHeld(_lock);
        var (frame, bytes) = lane.Frames.Dequeue();
        message.Frames.Add(frame);
        lane.Bytes -= bytes;
        _bytes -= bytes;
        _count--;
        return bytes;
    }

    private sealed class Lane
    {
        public Queue<(Frame Frame, long Bytes)> Frames { get; } = new();

        public long Bytes { get; set; }
    }
}
