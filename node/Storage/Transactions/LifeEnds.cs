using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// What a leader ends without being asked: keys that have expired by shard time, and sessions whose lifetime is over, with the keys that they own. It knows
/// when the next end is due, wakes the owner then, and writes the operations into the record that is being made. Costs nothing in a shard without lives. Owned
/// by a store; writer executor, unless a member says otherwise.
/// </summary>
internal sealed class LifeEnds : IDisposable
{
    /// <summary>Expiries that are due for longer are put before the requests that wait. The others use what these leave of a record.</summary>
    private const long LateMilliseconds = 100;

    /// <summary>The most expiries before the requests, and in a record at all. One takes some microseconds.</summary>
    private const int LateCountMax = 512;
    private const int CountMax = 4_096;

    /// <summary>Expiries of which a record asks whether their keys are gone, while there are more than keys.</summary>
    private const int SweepCount = 128;

    /// <summary>Expiries whose pages are read at once, where pages have to be read.</summary>
    public const int CountAhead = 512;

    /// <summary>The share of a record's bytes that ends may take before the requests.</summary>
    private const int ShareBefore = 4;

    /// <summary>The most sessions that end in one record.</summary>
    private const int SessionsMax = 64;

    /// <summary>The most sessions of which one record says what is left. One takes some microseconds.</summary>
    private const int RestsMax = 1_024;

    /// <summary>Pages that an end may make: a leaf and perhaps a branch of each tree that it changes, or a page of results.</summary>
    private const int PagesPerEnd = 8;

    /// <summary>Bytes of an operation beside its key.</summary>
    private const int OperationBytesMax = 1 + (4 * Varint.BytesMax);

    /// <summary>
    /// While a key is to expire, a record says what time it is at least as often as this, and before the key's end in a <see cref="TimeRecordShare"/>th of the
    /// time that is left. After all replicas have restarted at once, shard time goes on from the last record, so everything expires later by up to this.
    /// </summary>
    private const long TimeRecordMaxUs = 60_000_000;
    private const long TimeRecordMinUs = 1_000_000;
    private const int TimeRecordShare = 16;

    /// <summary>When to try again if no record could be made.</summary>
    private static readonly TimeSpan RetryInterval = TimeSpan.FromMilliseconds(100);

    /// <summary>Timers are no finer.</summary>
    private static readonly TimeSpan WaitMin = TimeSpan.FromMilliseconds(1);

    private readonly StoreContext _context;
    private readonly ShardClock _clock;
    private readonly WorkAction _woken;
    private readonly ReadAhead _sessionsAhead;
    private readonly ReadAhead _expiriesAhead;
    private ITimer? _timer;
    private long? _wakesAt;
    private ulong? _firstExpiryMs;
    private long _recordedUs;

    /// <summary>Where to look next for expiries whose keys are gone; empty: at the first.</summary>
    private byte[] _sweepFrom = [];

    /// <summary>Counts how often pages of expiries were read ahead.</summary>
    private uint _round;
    private volatile SessionLifetimes? _lifetimes;

    /// <summary>Ends nothing before <see cref="Begin"/>.</summary>
    /// <param name="context">The clocks and the observer.</param>
    /// <param name="clock">Shard time.</param>
    /// <param name="prefetch">Reads what ends will change; null: nobody does.</param>
    /// <param name="wake">Called on the writer executor when an end may be due.</param>
    public LifeEnds(StoreContext context, ShardClock clock, PathPrefetch? prefetch, Action wake)
    {
        (_context, _clock) = (context, clock);
        (_sessionsAhead, _expiriesAhead) = (new ReadAhead(prefetch, context.Writer, wake), new ReadAhead(prefetch, context.Writer, wake));
        _woken = new WorkAction(() =>
        {
            _wakesAt = null;
            wake();
        });
    }

    /// <summary>The countdowns of the present leadership; null if this replica does not lead. Any thread.</summary>
    public SessionLifetimes? Lifetimes => _lifetimes;

    /// <summary>A leadership begins with this state.</summary>
    public void Begin(WriteBatch batch, ulong epoch)
    {
        var lifetimes = new SessionLifetimes(epoch, _context.Time, _context.Options.ClockDriftPermille, _context.Options.HasShardTimes);
        SessionTable.ListWithLifetime(batch, lifetimes.Add);
        _lifetimes = lifetimes;
        Saw(batch);
    }

    /// <summary>The leadership ends.</summary>
    public void Stop() => (_lifetimes, _firstExpiryMs) = (null, null);

    /// <summary>The newest state, whose record has the present shard time.</summary>
    public void Saw(WriteBatch batch) => (_firstExpiryMs, _recordedUs) = (ExpiryIndex.First(batch), _clock.Microseconds);

    /// <summary>A session with a lifetime was opened in the record that is being made.</summary>
    public void Opened(UInt128 session, ulong lifetimeMilliseconds) => _lifetimes!.Open(session, lifetimeMilliseconds);

    /// <summary>
    /// Whether a record made now would end something. Only a leader may ask whose first record is committed, so that it has counted while its callers could
    /// reach it.
    /// </summary>
    public bool IsDue()
    {
        if (_lifetimes is not { } lifetimes)
            return false;
        if (lifetimes.Count > 0 && lifetimes.UntilNextLook == TimeSpan.Zero)
            lifetimes.Look();
        if (lifetimes.HasDue && !_sessionsAhead.IsUnderWay)
            return true;
        return _firstExpiryMs is { } first && ((!_expiriesAhead.IsUnderWay && IsReached(first, _clock.Now)) || IsTimeDue);
    }

    /// <summary>Whether a record should say what time it is, although it says nothing else. Only if <see cref="IsDue"/> may be asked.</summary>
    public bool IsTimeDue => TimeDueUs is { } dueUs && _clock.Now >= dueUs;

    // The shard time at which the next record must say what time it is; null if nothing expires.
    private long? TimeDueUs => _firstExpiryMs is not { } first ? null
        : _recordedUs + Math.Clamp(((long)Math.Min(first, long.MaxValue / 1_000) * 1_000 - _recordedUs) / TimeRecordShare, TimeRecordMinUs, TimeRecordMaxUs);

    /// <summary>Looks at the countdowns, and has the owner woken when the next end is due, or to try again.</summary>
    public void Arm()
    {
        if (_lifetimes is not { } lifetimes || (lifetimes.Count == 0 && _firstExpiryMs is null))
            return;
        if (lifetimes.Count > 0)
            lifetimes.Look();
        var wait = lifetimes.HasDue ? RetryInterval : lifetimes.UntilNextLook ?? Timeout.InfiniteTimeSpan;
        if (_firstExpiryMs is { } first && UntilExpiry(first) is var until && (wait == Timeout.InfiniteTimeSpan || until < wait))
            wait = until;
        wait = wait < WaitMin ? WaitMin : wait;
        var at = _context.Time.GetTimestamp() + (long)(wait.TotalSeconds * _context.Time.TimestampFrequency);
        if (_wakesAt <= at)
            return;
        _wakesAt = at;
        _timer ??= _context.Time.CreateTimer(_ => _context.Writer.Post(_woken), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _timer.Change(wait, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Appends the ends of sessions that are due, which come before the requests.</summary>
    /// <param name="batch">The newest state, which has all that was written.</param>
    /// <param name="payload">Gets the operations, which the caller applies before it calls anything else, because a key that ends with its session may be due
    /// to expire as well.</param>
    /// <param name="bytesMax">Size of the payload at which the record is closed.</param>
    /// <param name="recordBytesLeft">On a full disk, what the record may still take; otherwise null.</param>
    /// <param name="step">The step of the writer. No further end follows when it has taken enough.</param>
    public void AppendSessions(WriteBatch batch, ByteBuffer payload, int bytesMax, long? recordBytesLeft, in StepBound step)
    {
        if (_lifetimes is { HasDue: true } lifetimes)
            AppendSessions(batch, lifetimes, payload, Math.Min(bytesMax / ShareBefore, recordBytesLeft ?? long.MaxValue), recordBytesLeft, step);
    }

    /// <summary>
    /// Appends what is left of sessions whose callers are silent, behind the ends of sessions. The parameters are those of <see cref="AppendLate"/>.
    /// </summary>
    public void AppendRests(ByteBuffer payload, int bytesMax, int pagesLeft, long? recordBytesLeft)
    {
        if (_lifetimes is not { HasDue: true } lifetimes)
            return;
        // A full disk has room for the ends of sessions, but not for what is left of others.
        if (recordBytesLeft is not null)
            lifetimes.PutOffRests();
        var countMax = Math.Min(RestsMax, CountFor(pagesLeft));
        for (var count = 0; count < countMax && payload.Count < bytesMax / ShareBefore && lifetimes.TryTakeRest(out var session, out var leftMs); count++)
            Operations.SessionLeft(payload, session, leftMs);
    }

    /// <inheritdoc cref="SessionLifetimes.TryForgetRest"/>
    public bool TryForgetRest(UInt128 session, Etag etag) => _lifetimes!.TryForgetRest(session, etag);

    /// <inheritdoc cref="SessionLifetimes.Committed"/>
    public void Committed(Etag etag) => _lifetimes?.Committed(etag);

    /// <summary>
    /// Appends the expiries that are late, which come before the requests. The other parameters are those of <see cref="AppendSessions(WriteBatch, ByteBuffer,
    /// int, long?, in StepBound)"/>.
    /// </summary>
    /// <param name="shardTime">The record's shard time in microseconds.</param>
    /// <param name="bytesOfSessions">What the ends of sessions have taken of the share that comes before the requests.</param>
    /// <param name="pagesLeft">Pages that the record may make.</param>
    public void AppendLate(
        WriteBatch batch, long shardTime, ByteBuffer payload, int bytesMax, int bytesOfSessions, int pagesLeft, long? recordBytesLeft, in StepBound step)
    {
        if (_lifetimes is null || _firstExpiryMs is not { } first || !IsReached(first + LateMilliseconds, shardTime))
            return;
        var share = Math.Min((bytesMax / ShareBefore) - bytesOfSessions, recordBytesLeft ?? long.MaxValue);
        AppendExpiries(batch, shardTime, payload, Math.Min(LateCountMax, CountFor(pagesLeft)), share, step);
    }

    /// <summary>Appends the expiries that are due behind the requests. The parameters are those of <see cref="AppendLate"/>.</summary>
    public void AppendBehind(WriteBatch batch, long shardTime, ByteBuffer payload, long bytesLeft, int pagesLeft, in StepBound step) =>
        AppendExpiries(batch, shardTime, payload, Math.Min(CountMax, CountFor(pagesLeft)), bytesLeft, step);

    /// <summary>
    /// Whether there are more expiries than keys. Then deletes of ranges have left some, which would stay until they are due, perhaps for years: a key that
    /// is put to live long and goes with a range, again and again, would fill the disk. So there are never many more than keys.
    /// </summary>
    public static bool HasStaleExpiries(WriteBatch batch) => batch.KeysOf(TreeId.Expiry) > batch.KeysOf(TreeId.Kv);

    /// <summary>
    /// Looks at some more expiries, and appends that those are forgotten whose keys are gone. The parameters are those of <see cref="AppendLate"/>.
    /// </summary>
    public void AppendStale(WriteBatch batch, ByteBuffer payload, long bytesLeft, int pagesLeft, in StepBound step)
    {
        if (bytesLeft - KvLimits.KeyBytesMax - OperationBytesMax is > 0 and var room)
            _sweepFrom = ExpiryIndex.AppendStale(batch, _sweepFrom, payload, Math.Min(SweepCount, CountFor(pagesLeft)), room, step);
    }

    /// <summary>Whether there is something for <see cref="AppendBehind"/>.</summary>
    public bool HasExpiry(long shardTime) => _firstExpiryMs is { } first && IsReached(first, shardTime);

    /// <summary>The most bytes that the end of a session takes in a record.</summary>
    public static long BytesOfEnd(WriteBatch batch, in SessionState state) => OwnedKeys.SumOf(batch, state.Opened) is var (keys, bytes)
        ? (long)(bytes + (keys * (1 + Varint.BytesMax))) + 1 + Operations.SessionBytes : 0;

    /// <summary>Appends the end of a session: a delete of each of its keys, and then its own. Returns the number of keys.</summary>
    public int AppendEnd(WriteBatch batch, UInt128 session, in SessionState state, ByteBuffer payload)
    {
        var keys = state.LifetimeMilliseconds == 0 ? 0 : OwnedKeys.AppendDeletes(batch, state.Opened, payload);
        Operations.SessionEnd(payload, session);
        if (state.LifetimeMilliseconds != 0)
            _lifetimes!.Remove(session);
        return keys;
    }

    /// <inheritdoc/>
    public void Dispose() => _timer?.Dispose();

    private static bool IsReached(ulong milliseconds, long shardTime) => shardTime >= 0 && (ulong)shardTime / 1_000 >= milliseconds;

    /// <summary>How many ends may be in a record with so many pages left.</summary>
    public static int CountFor(int pagesLeft) => Math.Max(1, pagesLeft / PagesPerEnd);

    /// <summary>Provides the keys that a session owns, for <see cref="PathPrefetch"/>.</summary>
    public static PageKeysFill KeysOwned(Etag opened)
    {
        var (next, upper) = (new byte[OwnedKeys.EntryKeyBytes], new byte[OwnedKeys.EntryKeyBytes]);
        OwnedKeys.WriteEntryKey(next, opened, Etag.None);
        OwnedKeys.WriteEntryKey(upper, opened, Etag.MaxValue);
        return (in ReadSnapshot snapshot, PageKeys keys, int bytesMax) =>
        {
            using var cursor = snapshot.Cursor(TreeId.Owned, next, upper);
            while (keys.Bytes < bytesMax)
            {
                if (!cursor.MoveNext())
                    return false;
                keys.Add(TreeId.Kv, cursor.Value);
                next = [.. cursor.Key, 0];
            }
            return true;
        };
    }

    private void AppendSessions(WriteBatch batch, SessionLifetimes lifetimes, ByteBuffer payload, long room, long? recordBytesLeft, in StepBound step)
    {
        var (begin, sessions) = (payload.Count, 0);
        while (sessions < SessionsMax && payload.Count - begin < room && !step.HasReadEnough && lifetimes.TryPeekDue(out var session))
        {
            var exists = SessionTable.TryRead(batch, session, out var state);
            Invariant.Check(exists, $"A session that does not exist was counted down.");
            // The end of a session is in one record. On a full disk it waits for a record that has the room.
            if (recordBytesLeft is { } left && payload.Count - begin + BytesOfEnd(batch, state) > left)
                break;
            // For watchers, too, the end of a session is one record and cannot be divided. So its pages are read before, unless they are few.
            if (!_sessionsAhead.MayBegin(session, (int)OwnedKeys.SumOf(batch, state.Opened).Keys, KeysOwned(state.Opened)))
                break;
            if (!lifetimes.TryEndDue())
                continue;
            AppendEnd(batch, session, state, payload);
            sessions++;
        }
        if (sessions > 0)
            _context.Observer.SessionsEnded(sessions);
    }

    private void AppendExpiries(WriteBatch batch, long shardTime, ByteBuffer payload, int countMax, long bytesMax, in StepBound step)
    {
        // The last operation may be as large as a key.
        var room = bytesMax - KvLimits.KeyBytesMax - OperationBytesMax;
        if (room <= 0)
            return;
        var now = (ulong)shardTime / 1_000;
        if (_expiriesAhead.IsCold || _expiriesAhead.IsUnderWay)
        {
            if (!_expiriesAhead.MayBegin(_round, CountAhead, ExpiryIndex.KeysDue(now, CountAhead)))
                return;
            // Keys that are due behind these are read in the next round.
            countMax = Math.Min(countMax, CountAhead);
            _round++;
        }
        var (keys, first) = ExpiryIndex.AppendDue(batch, now, payload, countMax, room, step);
        if (step.HasReadEnough)
            _expiriesAhead.BecomeCold();
        if (keys > 0)
            _context.Observer.Expired(keys, TimeSpan.FromMilliseconds((shardTime / 1_000d) - first));
    }

    private TimeSpan UntilExpiry(ulong milliseconds)
    {
        if (IsReached(milliseconds, _clock.Now) || IsTimeDue)
            return RetryInterval;
        return _clock.Until(Math.Min((long)Math.Min(milliseconds, long.MaxValue / 1_000) * 1_000, TimeDueUs!.Value));
    }
}
