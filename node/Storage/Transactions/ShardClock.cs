namespace KvCluster.Storage.Transactions;

/// <summary>
/// Shard time: what records carry as their wall time, and what sessions age by. It follows the leader's wall clock without being at its mercy. A clock a year
/// ahead once ended all sessions of a shard with one record, and then no session aged for a year. So shard time runs at most twice as fast as time passes, and
/// while it is ahead of the wall clock it goes on at half the pace. Owned by a store; writer executor.
/// </summary>
/// <param name="time">A clock that never goes back: what passes between two records.</param>
internal sealed class ShardClock(TimeProvider time)
{
    /// <summary>
    /// What a new leader's first record may catch up with, as it does not know how long there was none: more than an election takes, and the least time for
    /// which an idle session stays is no shorter.
    /// </summary>
    public static readonly TimeSpan OpenStepMax = TimeSpan.FromMinutes(1);

    private long _steppedAt;

    /// <summary>Microseconds since 1970 UTC; never falls but by <see cref="Reset"/>. 0: the shard has no record.</summary>
    public long Microseconds { get; private set; }

    /// <summary>A record that was written before is applied.</summary>
    public void Saw(long microseconds) => Microseconds = Math.Max(Microseconds, microseconds);

    /// <summary>The published state has this, and what was recorded behind it is dropped, or read again.</summary>
    public void Reset(long microseconds) => Microseconds = microseconds;

    /// <summary>For the first record of a leadership.</summary>
    public void Open(DateTimeOffset wallTime)
    {
        var wall = ToMicroseconds(wallTime);
        // A new shard has nothing that could age.
        Saw(Microseconds == 0 ? wall : Math.Min(wall, Microseconds + (OpenStepMax.Ticks / TimeSpan.TicksPerMicrosecond)));
        _steppedAt = time.GetTimestamp();
    }

    /// <summary>For a further record.</summary>
    public void Step(DateTimeOffset wallTime)
    {
        var now = time.GetTimestamp();
        var passed = time.GetElapsedTime(_steppedAt, now).Ticks / TimeSpan.TicksPerMicrosecond;
        var wall = ToMicroseconds(wallTime);
        Microseconds += wall > Microseconds ? Math.Min(wall - Microseconds, 2 * passed) : passed / 2;
        _steppedAt = now;
    }

    private static long ToMicroseconds(DateTimeOffset wallTime) => (wallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond;
}
