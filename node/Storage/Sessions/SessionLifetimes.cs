using System.Collections.Concurrent;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The countdowns of a shard's sessions with a lifetime, at the leader and for one leadership. They are not replicated: a new leader gives every session its full lifetime,
/// and so does one whose clock it finds far ahead of its last look, because it stood still and what its callers sent meanwhile was not heard. Callers restart
/// countdowns on any thread, without a lock; the rest belongs to the writer executor. A session that is due ends when its end is put into a record and not before,
/// so a KeepAlive that comes while the disk stalls still counts.
/// </summary>
/// <remarks>
/// A restart is one write. A session has one entry in the order of time, at or before its end, which is moved when its time comes. So 100,000 sessions cost as many moves per
/// lifetime, whatever the number of their KeepAlives.
/// </remarks>
/// <param name="epoch">The leadership.</param>
/// <param name="time">The boot clock.</param>
internal sealed class SessionLifetimes(ulong epoch, TimeProvider time)
{
    /// <summary>How often to look, at least. The shortest lifetime is a second.</summary>
    public static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>A longer time between two looks means that this process, or the machine, stood still.</summary>
    private static readonly TimeSpan StillMax = TimeSpan.FromSeconds(1);

    /// <summary>Bounds the time of a look. After an election all sessions may have the same moment.</summary>
    private const int MovesPerLookMax = 1_024;

    /// <summary>Entries of sessions that ended before their time, beside those of all others.</summary>
    private const int StaleEntriesMax = 1_024;

    private readonly ConcurrentDictionary<UInt128, Countdown> _sessions = new();
    private readonly PriorityQueue<Countdown, long> _checks = new();
    private readonly Queue<Countdown> _due = new();
    private long _fullSinceMs;
    private long _lookedAtMs = long.MinValue;

    /// <summary>The leadership that counts.</summary>
    public ulong Epoch => epoch;

    /// <summary>Sessions that are counted down. Any thread; may be out of date.</summary>
    public int Count { get; private set; }

    /// <summary>Whether a session seems to be due.</summary>
    public bool HasDue => _due.Count > 0;

    /// <summary>How long to wait before the next look; null if there is nothing to look at.</summary>
    public TimeSpan? UntilNextLook
    {
        get
        {
            if (Count == 0)
                return null;
            var nowMs = NowMs();
            return !_checks.TryPeek(out _, out var atMs) || atMs > nowMs + LookInterval.TotalMilliseconds ? LookInterval
                : atMs <= nowMs ? TimeSpan.Zero
                : TimeSpan.FromMilliseconds(atMs - nowMs);
        }
    }

    /// <summary>Counts a session that exists. Its countdown begins with the first look.</summary>
    public void Add(UInt128 session, ulong lifetimeMilliseconds) => Add(session, lifetimeMilliseconds, long.MinValue);

    /// <summary>Counts a session that was opened now.</summary>
    public void Open(UInt128 session, ulong lifetimeMilliseconds) => Add(session, lifetimeMilliseconds, NowMs());

    /// <summary>A session has ended otherwise, or its end is in a record.</summary>
    public void Remove(UInt128 session)
    {
        if (!_sessions.TryRemove(session, out var countdown))
            return;
        Count--;
        countdown.End();
        if (_checks.Count > (2 * Count) + StaleEntriesMax)
            DropStale();
    }

    /// <summary>Restarts the countdown of a session, and returns its lifetime in milliseconds; 0 if it is not counted, or has ended. Any thread.</summary>
    public ulong KeepAlive(UInt128 session) => _sessions.TryGetValue(session, out var countdown) && countdown.TryRestart(NowMs()) ? countdown.LifetimeMs : 0;

    /// <summary>
    /// Finds what is due. Called while this replica serves, at least every <see cref="LookInterval"/> while there are sessions. It may not find everything at once; <see cref="UntilNextLook"/> is zero then.
    /// </summary>
    public void Look()
    {
        var nowMs = NowMs();
        if (_lookedAtMs == long.MinValue || nowMs - _lookedAtMs > StillMax.TotalMilliseconds)
            _fullSinceMs = nowMs;
        _lookedAtMs = nowMs;
        for (var moves = 0; moves < MovesPerLookMax && _checks.TryPeek(out var countdown, out var atMs) && atMs <= nowMs; moves++)
        {
            _checks.Dequeue();
            if (countdown.EndsAtMs(_fullSinceMs) <= nowMs)
                _due.Enqueue(countdown);
            else
                Schedule(countdown);
        }
    }

    /// <summary>The next session that seems to be due, without taking it.</summary>
    public bool TryPeekDue(out UInt128 session)
    {
        while (_due.TryPeek(out var countdown))
        {
            session = countdown.Session;
            if (!countdown.HasEnded)
                return true;
            _due.Dequeue();
        }
        session = 0;
        return false;
    }

    /// <summary>
    /// Takes that session. True: it has ended, and no KeepAlive restarts it any more; its end must be put into the record that is being made. False: a KeepAlive came first.
    /// </summary>
    public bool TryEndDue()
    {
        var countdown = _due.Dequeue();
        if (countdown.TryEnd(_fullSinceMs, NowMs()))
        {
            Remove(countdown.Session);
            return true;
        }
        if (!countdown.HasEnded)
            Schedule(countdown);
        return false;
    }

    private void Add(UInt128 session, ulong lifetimeMilliseconds, long keptAtMs)
    {
        var countdown = new Countdown(session, lifetimeMilliseconds, keptAtMs);
        var isNew = _sessions.TryAdd(session, countdown);
        Invariant.Check(isNew, $"A session's countdown was begun twice.");
        Count++;
        // Those that exist already get their moment at the first look, when their countdown begins.
        _checks.Enqueue(countdown, keptAtMs == long.MinValue ? long.MinValue : countdown.EndsAtMs(_fullSinceMs));
    }

    private void Schedule(Countdown countdown)
    {
        if (!countdown.HasEnded)
            _checks.Enqueue(countdown, countdown.EndsAtMs(_fullSinceMs));
    }

    private void DropStale()
    {
        var left = _checks.UnorderedItems.Where(static entry => !entry.Element.HasEnded).ToArray();
        _checks.Clear();
        _checks.EnqueueRange(left);
    }

    private long NowMs() => time.GetTimestamp() / (time.TimestampFrequency / 1_000);

    /// <summary>One session's countdown.</summary>
    private sealed class Countdown(UInt128 session, ulong lifetimeMs, long keptAtMs)
    {
        private const long Ended = long.MaxValue;

        private long _keptAtMs = keptAtMs;

        public UInt128 Session => session;

        public ulong LifetimeMs => lifetimeMs;

        public bool HasEnded => Volatile.Read(ref _keptAtMs) == Ended;

        public long EndsAtMs(long fullSinceMs) => EndsAtMs(Volatile.Read(ref _keptAtMs), fullSinceMs);

        public bool TryRestart(long nowMs)
        {
            for (var seen = Volatile.Read(ref _keptAtMs); seen != Ended;)
            {
                if (seen >= nowMs || Interlocked.CompareExchange(ref _keptAtMs, nowMs, seen) is var found && found == seen)
                    return true;
                seen = found;
            }
            return false;
        }

        public bool TryEnd(long fullSinceMs, long nowMs)
        {
            var seen = Volatile.Read(ref _keptAtMs);
            return seen != Ended && EndsAtMs(seen, fullSinceMs) <= nowMs && Interlocked.CompareExchange(ref _keptAtMs, Ended, seen) == seen;
        }

        public void End() => Volatile.Write(ref _keptAtMs, Ended);

        // Moments are cut to whole milliseconds, so that the lifetime is surely over one later.
        private long EndsAtMs(long keptAtMs, long fullSinceMs) => keptAtMs == Ended ? Ended : Math.Max(keptAtMs, fullSinceMs) + (long)lifetimeMs + 1;
    }
}
