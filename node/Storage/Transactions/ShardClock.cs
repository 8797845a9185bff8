using KvCluster.Storage.DataFile;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Shard time, which records carry as their wall time and by which sessions age. It follows the leader's wall clock, but within limits: a clock that was a
/// year ahead once ended all sessions of a shard with one record, and afterwards no session aged for a year. Shard time therefore runs at most twice as
/// fast as real time, and at half speed while it is ahead of the wall clock. Owned by a store; writer executor.
/// </summary>
/// <param name="time">A monotonic clock, which measures the time between two records.</param>
internal sealed class ShardClock(TimeProvider time)
{
    /// <summary>
    /// The most by which a new leader's first record may advance shard time, since the leader does not know how long there was no record. This is more
    /// than an election takes, and no more than the minimum time for which an idle session is kept.
    /// </summary>
    public static readonly TimeSpan OpenStepMax = TimeSpan.FromMinutes(1);

    private long _steppedAt;

    /// <summary>Microseconds since 1970 UTC. Decreases only in <see cref="Reset"/>. 0 means that the shard has no record.</summary>
    public long Microseconds { get; private set; }

    /// <summary>Takes the shard time of an existing record that is applied.</summary>
    public void Saw(long microseconds) => Microseconds = Math.Max(Microseconds, microseconds);

    /// <summary>Sets the shard time of a store's published state. What was recorded after it is dropped, or read again.</summary>
    public void Reset(PageStore pages) => Microseconds = pages.Roots.Published.ShardTime;

    /// <summary>Advances shard time for the first record of a leadership.</summary>
    public void Open(DateTimeOffset wallTime)
    {
        var wall = ToMicroseconds(wallTime);
        // A new shard has nothing that could age.
        Saw(Microseconds == 0 ? wall : Math.Min(wall, Microseconds + (OpenStepMax.Ticks / TimeSpan.TicksPerMicrosecond)));
        _steppedAt = time.GetTimestamp();
    }

    /// <summary>Advances shard time for a later record.</summary>
    public void Step(DateTimeOffset wallTime)
    {
        var now = time.GetTimestamp();
        (Microseconds, _steppedAt) = (At(wallTime, now), now);
    }

    /// <summary>The shard time that a later record would have now.</summary>
    public long Peek(DateTimeOffset wallTime) => At(wallTime, time.GetTimestamp());

    /// <summary>How long it is until a later record would have this shard time, if the wall clock goes on as it is. A wait of at most a day.</summary>
    public TimeSpan Until(long microseconds, DateTimeOffset wallTime)
    {
        var (wall, passed) = (ToMicroseconds(wallTime), Passed(time.GetTimestamp()));
        var ofWall = microseconds - wall;
        var left = wall > Microseconds
            ? Math.Max(ofWall, ((microseconds - Microseconds + 1) / 2) - passed)
            : Math.Min(ofWall, (2 * (microseconds - Microseconds)) - passed);
        return TimeSpan.FromMicroseconds(Math.Clamp(left, 0, TimeSpan.MicrosecondsPerDay));
    }

    private long At(DateTimeOffset wallTime, long now)
    {
        var (wall, passed) = (ToMicroseconds(wallTime), Passed(now));
        return Microseconds + (wall > Microseconds ? Math.Min(wall - Microseconds, 2 * passed) : passed / 2);
    }

    private long Passed(long now) => time.GetElapsedTime(_steppedAt, now).Ticks / TimeSpan.TicksPerMicrosecond;

    private static long ToMicroseconds(DateTimeOffset wallTime) => (wallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond;
}
