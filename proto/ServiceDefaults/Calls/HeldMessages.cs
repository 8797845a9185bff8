// Bytes of messages that wait for their callers, over all calls of a server, oldest first. Used by any thread, under the lock, for messages that do not
// arrive or leave in one piece. If there is no room, the messages that have been slow for longest are ended to make it. So an attack with thousands of
// half-sent requests ends those, and not the calls of others, whose messages take milliseconds.

namespace KvCluster.ServiceDefaults.Calls;

/// <summary>Limits the bytes held and tracks who holds them.</summary>
internal sealed class HeldMessages(long bytesMax, long patienceMs = HeldMessages.PatienceMsDefault)
{
    /// <summary>A message that takes longer than this is ended if another one needs its room.</summary>
    public const long PatienceMsDefault = 2_000;

    /// <summary>The last quarter is reserved for messages of at most this size.</summary>
    private const int SmallBytes = 64 << 10;

    private readonly Lock _gate = new();
    private long _bytes;
    private HeldMessage? _oldest;
    private HeldMessage? _newest;

    /// <summary>Number of bytes held.</summary>
    public long Bytes
    {
        get
        {
            lock (_gate)
                return _bytes;
        }
    }

    /// <summary>Whether a message of this size would be accepted now; asked before it is made.</summary>
    public bool HasRoom(long bytes)
    {
        lock (_gate)
            return _bytes + bytes <= LimitFor(bytes) || (_oldest is { } oldest && Environment.TickCount64 - oldest.SinceMs >= patienceMs);
    }

    /// <summary>Makes a message hold this many bytes in total. Returns false if there is no room; it then holds what it held before.</summary>
    public bool TryHold(HeldMessage message, long bytes)
    {
        lock (_gate)
        {
            var more = bytes - message.Bytes;
            var limit = LimitFor(bytes);
            if (more > 0 && _bytes + more > limit && !TryMakeRoomLocked(limit - more, message))
                return false;
            if (!message.IsListed)
                AppendLocked(message);
            message.Bytes = bytes;
            _bytes += more;
            return true;
        }
    }

    /// <summary>Counts a message that has completely arrived and is being served, even if there is no room. It is not ended for others.</summary>
    public void Keep(HeldMessage message, long bytes)
    {
        lock (_gate)
        {
            RemoveLocked(message);
            message.Bytes = bytes;
            _bytes += bytes;
        }
    }

    /// <summary>Releases a message that is complete or not waited for any more.</summary>
    public void Release(HeldMessage message)
    {
        lock (_gate)
            RemoveLocked(message);
    }

    private long LimitFor(long bytes) => bytes <= SmallBytes ? bytesMax : bytesMax - (bytesMax / 4);

    // Under the lock the owner cannot end the call meanwhile and reuse the object for another one.
    private bool TryMakeRoomLocked(long bytesWanted, HeldMessage newcomer)
    {
        Invariant.CheckHeld(_gate);
        var now = Environment.TickCount64;
        while (_bytes > bytesWanted && _oldest is { } oldest && oldest != newcomer && now - oldest.SinceMs >= patienceMs)
        {
            RemoveLocked(oldest);
            oldest.End();
        }
        return _bytes <= bytesWanted;
    }

    private void AppendLocked(HeldMessage message)
    {
        Invariant.CheckHeld(_gate);
        message.SinceMs = Environment.TickCount64;
        message.IsListed = true;
        message.Older = _newest;
        if (_newest is null)
            _oldest = message;
        else
            _newest.Newer = message;
        _newest = message;
    }

    private void RemoveLocked(HeldMessage message)
    {
        Invariant.CheckHeld(_gate);
        _bytes -= message.Bytes;
        message.Bytes = 0;
        if (!message.IsListed)
            return;
        message.IsListed = false;
        if (message.Older is null)
            _oldest = message.Newer;
        else
            message.Older.Newer = message.Newer;
        if (message.Newer is null)
            _newest = message.Older;
        else
            message.Newer.Older = message.Older;
        message.Older = message.Newer = null;
    }
}

/// <summary>The message that a call waits for. It belongs to <see cref="HeldMessages"/> and is used under its lock.</summary>
/// <param name="end">Ends the call.</param>
internal sealed class HeldMessage(Action end)
{
    /// <summary>Number of bytes held.</summary>
    public long Bytes { get; set; }

    /// <summary>Whether it is in the list of messages that are waited for.</summary>
    public bool IsListed { get; set; }

    /// <summary><see cref="Environment.TickCount64"/> at which it began to hold bytes.</summary>
    public long SinceMs { get; set; }

    public HeldMessage? Older { get; set; }

    public HeldMessage? Newer { get; set; }

    public void End() => end();
}

/// <summary>
/// Limits what messages of slow callers may hold in a server's buffers. Added to the services of a host that wants limits; without it there are none.
/// </summary>
internal sealed class MessageMemory(long arrivingBytesMax, long leavingBytesMax)
{
    /// <summary>Requests that have partly arrived.</summary>
    public HeldMessages Arriving { get; } = new(arrivingBytesMax);

    /// <summary>Unary responses that have not been read.</summary>
    public HeldMessages Leaving { get; } = new(leavingBytesMax);
}
