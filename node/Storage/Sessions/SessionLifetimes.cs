using System.Collections.Concurrent;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The countdowns of a shard's sessions with a lifetime, at the leader and for one leadership. A leader whose clock it finds far ahead of its last look stood
/// still, and what its callers sent meanwhile was not heard, so every countdown stops for that pause. A new leader knows when no KeepAlive was answered only
/// where a record says what was left of a session; it continues from there, and gives the others their full lifetime. Callers restart countdowns on any thread,
/// without a lock; the rest belongs to the writer executor. A session that is due ends when its end is put into a record and not before, so a KeepAlive that
/// comes while the disk stalls still counts.
/// </summary>
/// <remarks>
/// A restart is one write. A session has one entry in the order of time, at or before its next moment, which is moved when its time comes. So 100,000 sessions
/// cost a few moves per lifetime each, whatever the number of their KeepAlives. Moments are in milliseconds that are counted, which is the boot clock without
/// the pauses.
/// </remarks>
/// <param name="epoch">The leadership.</param>
/// <param name="time">The boot clock.</param>
/// <param name="driftPermille">How much faster than real time it may run, in thousandths.</param>
/// <param name="records">Whether what is left may be recorded.</param>
internal sealed class SessionLifetimes(ulong epoch, TimeProvider time, int driftPermille = 0, bool records = true)
{
    /// <summary>How often to look, at least. The shortest lifetime is a second.</summary>
    public static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>A longer time between two looks means that this process, or the machine, stood still.</summary>
    private static readonly TimeSpan StillMax = TimeSpan.FromSeconds(1);

    /// <summary>
    /// The longest silence of a session that was not heard in this leadership before its rest is recorded: failovers that are further apart do not keep it
    /// alive. A quarter of its lifetime if that is less.
    /// </summary>
    private static readonly TimeSpan UnheardMax = TimeSpan.FromSeconds(10);

    /// <summary>Bounds the time of a look. After an election all sessions may have the same moment.</summary>
    private const int MovesPerLookMax = 1_024;

    /// <summary>Entries of sessions that ended before their time, beside those of all others.</summary>
    private const int StaleEntriesMax = 1_024;

    private readonly ConcurrentDictionary<UInt128, Countdown> _sessions = new();
    private readonly PriorityQueue<Countdown, long> _checks = new();
    private readonly Queue<Countdown> _due = new();
    private readonly Queue<Countdown> _toRecord = new();

    /// <summary>Countdowns whose recorded rest no longer holds by a record that is not committed yet, in the order of the records.</summary>
    private readonly Queue<(Etag Etag, Countdown Countdown)> _forgotten = new();
    private long _beganMs = long.MinValue;
    private long _lookedAtMs;
    private long _stillMs;
    private long? _stoodStillAtMs;

    /// <summary>
    /// No later moment is counted before the next look, which finds that this process stood still. Otherwise a KeepAlive that comes between counted the pause
    /// as well.
    /// </summary>
    private long _countedMaxMs = long.MaxValue;

    /// <summary>The leadership that counts.</summary>
    public ulong Epoch => epoch;

    /// <summary>Sessions that are counted down. Any thread; may be out of date.</summary>
    public int Count { get; private set; }

    /// <summary>Whether a session seems to be due to end, or its rest to be recorded.</summary>
    public bool HasDue => _due.Count > 0 || _toRecord.Count > 0;

    /// <summary>How long to wait before the next look; null if there is nothing to look at.</summary>
    public TimeSpan? UntilNextLook
    {
        get
        {
            if (Count == 0)
                return null;
            var nowMs = CountedMs();
            return !_checks.TryPeek(out _, out var atMs) || atMs > nowMs + LookInterval.TotalMilliseconds ? LookInterval
                : atMs <= nowMs ? TimeSpan.Zero
                : TimeSpan.FromMilliseconds(atMs - nowMs);
        }
    }

    /// <summary>Counts a session that exists. Its countdown begins with the first look.</summary>
    /// <param name="session">The session.</param>
    /// <param name="lifetimeMilliseconds">Its lifetime.</param>
    /// <param name="leftMilliseconds">What is recorded to be left of it; 0 = nothing is recorded.</param>
    public void Add(UInt128 session, ulong lifetimeMilliseconds, ulong leftMilliseconds = 0)
    {
        var left = leftMilliseconds == 0 ? lifetimeMilliseconds : Math.Min(leftMilliseconds, lifetimeMilliseconds);
        // The countdown begins at the first look, which also sets the session's moment in the queue.
        Add(new Countdown(
            session, lifetimeMilliseconds, CountedFor(lifetimeMilliseconds), CountedFor(left),
            Countdown.Unheard) { IsRecorded = leftMilliseconds != 0 }, long.MinValue);
    }

    /// <summary>Counts a session that was opened now.</summary>
    public void Open(UInt128 session, ulong lifetimeMilliseconds)
    {
        // While there are no sessions the clock is not looked at. That time is no pause.
        if (Count == 0 && _beganMs != long.MinValue)
            NoteLook(NowMs());
        var countedMs = CountedFor(lifetimeMilliseconds);
        var countdown = new Countdown(session, lifetimeMilliseconds, countedMs, countedMs, CountedMs());
        Add(countdown, MomentOf(countdown));
    }

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

    /// <summary>
    /// Restarts the countdown of a session, and returns its lifetime in milliseconds; 0 if it is not counted, or has ended. Any thread.
    /// </summary>
    /// <param name="session">The session.</param>
    /// <param name="isRecorded">Whether a record says, or may say, what was left before. The caller may be told nothing before another record says that this
    /// does not hold any more.</param>
    public ulong KeepAlive(UInt128 session, out bool isRecorded)
    {
        isRecorded = false;
        if (!_sessions.TryGetValue(session, out var countdown) || !countdown.TryRestart(CountedMs()))
            return 0;
        // The restart is visible before this is read, and the writer marks before it looks for a restart. So one of the two sees the other.
        Interlocked.MemoryBarrier();
        isRecorded = countdown.IsRecorded;
        return countdown.LifetimeMs;
    }

    /// <summary>
    /// Finds what is due. Called while this replica serves, at least every <see cref="LookInterval"/> while there are sessions. It may not find everything at
    /// once; <see cref="UntilNextLook"/> is zero then.
    /// </summary>
    public void Look()
    {
        NotePause();
        var nowMs = CountedMs();
        if (_beganMs == long.MinValue)
            _beganMs = nowMs;
        for (var moves = 0; moves < MovesPerLookMax && _checks.TryPeek(out var countdown, out var atMs) && atMs <= nowMs; moves++)
        {
            _checks.Dequeue();
            if (countdown.EndsAtMs(_beganMs) <= nowMs)
                _due.Enqueue(countdown);
            else if (RecordAtMs(countdown) <= nowMs && !countdown.HasEnded)
                _toRecord.Enqueue(countdown);
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
    /// Takes that session. True: it has ended, and no KeepAlive restarts it any more; its end must be put into the record that is being made. False: a
    /// KeepAlive came first.
    /// </summary>
    public bool TryEndDue()
    {
        var countdown = _due.Dequeue();
        if (countdown.TryEnd(_beganMs, CountedMs()))
        {
            Remove(countdown.Session);
            return true;
        }
        Schedule(countdown);
        return false;
    }

    /// <summary>The next session of which it must be recorded how many milliseconds are left, in the record that is being made.</summary>
    public bool TryTakeRest(out UInt128 session, out ulong leftMilliseconds)
    {
        while (_toRecord.TryDequeue(out var countdown))
        {
            var nowMs = CountedMs();
            var wasRecorded = countdown.IsRecorded;
            countdown.IsRecorded = true;
            Interlocked.MemoryBarrier();
            var left = countdown.EndsAtMs(_beganMs) - nowMs;
            if (!countdown.HasEnded && left > 0 && RecordAtMs(countdown) <= nowMs)
            {
                countdown.RecordedAtMs = nowMs;
                countdown.ForgottenAt = Etag.None;
                Schedule(countdown);
                (session, leftMilliseconds) = (countdown.Session, (ulong)left);
                return true;
            }
            countdown.IsRecorded = wasRecorded;
            Schedule(countdown);
        }
        (session, leftMilliseconds) = (0, 0);
        return false;
    }

    /// <summary>What should be recorded cannot be now. It is tried again later.</summary>
    public void PutOffRests()
    {
        while (_toRecord.TryDequeue(out var countdown))
        {
            countdown.RecordedAtMs = CountedMs();
            Schedule(countdown);
        }
    }

    /// <summary>
    /// The record that is being made says that what was recorded before does not hold any more, which counts when it is committed: a new leader may not have it
    /// before. False if there is no such session, nothing was recorded, or a record that is not committed yet says so already.
    /// </summary>
    /// <param name="session">The session.</param>
    /// <param name="etag">The etag of that change.</param>
    public bool TryForgetRest(UInt128 session, Etag etag)
    {
        if (!_sessions.TryGetValue(session, out var countdown) || !countdown.IsRecorded || countdown.ForgottenAt != Etag.None)
            return false;
        countdown.ForgottenAt = etag;
        _forgotten.Enqueue((etag, countdown));
        return true;
    }

    /// <summary>Everything up to an etag is committed.</summary>
    public void Committed(Etag etag)
    {
        while (_forgotten.TryPeek(out var first) && first.Etag <= etag)
        {
            _forgotten.Dequeue();
            // Unless something was recorded again since.
            if (first.Countdown.ForgottenAt == first.Etag)
                (first.Countdown.IsRecorded, first.Countdown.ForgottenAt) = (false, Etag.None);
        }
    }

    private void Add(Countdown countdown, long momentMs)
    {
        var isNew = _sessions.TryAdd(countdown.Session, countdown);
        Invariant.Check(isNew, $"A session's countdown was begun twice.");
        Count++;
        _checks.Enqueue(countdown, momentMs);
    }

    private void Schedule(Countdown countdown)
    {
        if (!countdown.HasEnded)
            _checks.Enqueue(countdown, MomentOf(countdown));
    }

    private long MomentOf(Countdown countdown) => Math.Min(countdown.EndsAtMs(_beganMs), RecordAtMs(countdown));

    // A caller that sends a KeepAlive in each third of the lifetime makes no record, except after a change of the leader.
    private long RecordAtMs(Countdown countdown)
    {
        if (!records)
            return long.MaxValue;
        var lifetimeMs = (long)countdown.LifetimeMs;
        var silentMs = countdown is { IsHeard: true, IsRecorded: false } ? lifetimeMs / 2
            : countdown.RecordedAtMs == Countdown.Never ? Math.Min(lifetimeMs / 4, (long)UnheardMax.TotalMilliseconds)
            : lifetimeMs / 4;
        return countdown.SilentSinceMs(_beganMs) + silentMs;
    }

    /// <summary>
    /// No countdown goes on while this process stood still, so every session lives longer by the pause. Of a pause that soon follows another one a little is
    /// counted, or sessions would never end at a leader that is always late.
    /// </summary>
    private void NotePause()
    {
        var nowMs = NowMs();
        var pauseMs = _beganMs == long.MinValue ? 0 : nowMs - _lookedAtMs;
        if (pauseMs > StillMax.TotalMilliseconds)
        {
            var isAgain = _lookedAtMs - _stillMs - _stoodStillAtMs < StillMax.TotalMilliseconds;
            Volatile.Write(ref _stillMs, _stillMs + pauseMs - (isAgain ? (long)LookInterval.TotalMilliseconds : 0));
            _stoodStillAtMs = nowMs - _stillMs;
        }
        NoteLook(nowMs);
    }

    private void NoteLook(long nowMs)
    {
        _lookedAtMs = nowMs;
        Volatile.Write(ref _countedMaxMs, nowMs - _stillMs + (long)StillMax.TotalMilliseconds);
    }

    private void DropStale()
    {
        var left = _checks.UnorderedItems.Where(static entry => !entry.Element.HasEnded).ToArray();
        _checks.Clear();
        _checks.EnqueueRange(left);
    }

    // Moments are cut to whole milliseconds, so one more is surely over.
    private long CountedFor(ulong milliseconds) => (long)milliseconds + ((long)milliseconds * driftPermille / (1_000 - driftPermille)) + 1;

    private long CountedMs() => Math.Min(NowMs() - Volatile.Read(ref _stillMs), Volatile.Read(ref _countedMaxMs));

    private long NowMs() => time.GetTimestamp() / (time.TimestampFrequency / 1_000);

    /// <summary>One session's countdown.</summary>
    /// <param name="session">The session.</param>
    /// <param name="lifetimeMs">Its lifetime.</param>
    /// <param name="countedMs">How much of this leader's clock that is.</param>
    /// <param name="leftMs">How much of this leader's clock the countdown begins with.</param>
    /// <param name="keptAtMs">When the session was heard; <see cref="Unheard"/>: not in this leadership.</param>
    private sealed class Countdown(UInt128 session, ulong lifetimeMs, long countedMs, long leftMs, long keptAtMs)
    {
        public const long Unheard = long.MinValue;
        public const long Never = long.MinValue;

        private const long Ended = long.MaxValue;

        private long _keptAtMs = keptAtMs;
        private volatile bool _isRecorded;

        public UInt128 Session => session;

        public ulong LifetimeMs => lifetimeMs;

        public bool HasEnded => Volatile.Read(ref _keptAtMs) == Ended;

        public bool IsHeard => Volatile.Read(ref _keptAtMs) != Unheard;

        /// <summary>Whether a record says, or is about to say, what is left. The writer sets it.</summary>
        public bool IsRecorded
        {
            get => _isRecorded;
            set => _isRecorded = value;
        }

        /// <summary>The change that says that this does not hold any more, in a record that is not committed yet. Writer only.</summary>
        public Etag ForgottenAt { get; set; }

        /// <summary>When that was recorded last in this leadership. Writer only.</summary>
        public long RecordedAtMs { get; set; } = Never;

        public long EndsAtMs(long beganMs) => EndsAtMs(Volatile.Read(ref _keptAtMs), beganMs);

        public long SilentSinceMs(long beganMs) =>
            Math.Max(RecordedAtMs, Volatile.Read(ref _keptAtMs) is var seen && seen == Ended ? 0 : Math.Max(seen, beganMs));

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

        public bool TryEnd(long beganMs, long nowMs)
        {
            var seen = Volatile.Read(ref _keptAtMs);
            return seen != Ended && EndsAtMs(seen, beganMs) <= nowMs && Interlocked.CompareExchange(ref _keptAtMs, Ended, seen) == seen;
        }

        public void End() => Volatile.Write(ref _keptAtMs, Ended);

        private long EndsAtMs(long keptAtMs, long beganMs) => keptAtMs switch
        {
            Ended => Ended,
            Unheard => beganMs + leftMs,
            _ => Math.Max(keptAtMs, beganMs) + countedMs,
        };
    }
}
