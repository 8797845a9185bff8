using KvCluster.Storage.DataFile;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The two times that records carry. *Shard time* is what lives are counted by: it is no node's wall clock, it never runs faster than real time, and it stands
/// still only while no leader runs (node/Replication/INVARIANTS.md, "Shard time"). The *wall time* is for people and for history; nothing is decided by it.
/// Owned by a store; writer executor.
/// </summary>
/// <param name="time">The boot clock, which measures the time since a leadership began.</param>
/// <param name="driftPermille">How much faster than real time that clock may run, in thousandths. Shard time is slower than it by so much.</param>
internal sealed class ShardClock(TimeProvider time, int driftPermille)
{
    private long _begunUs;
    private long _begunAt;
    private long _wallUs;

    /// <summary>What <see cref="Present"/> adds to the boot clock without its drift, in microseconds. Written by the writer.</summary>
    private long _aheadOfBoot;

    /// <summary>The shard time of the newest record, in microseconds. Decreases only in <see cref="Reset"/>. 0 means that the shard has no record.</summary>
    public long Microseconds { get; private set; }

    /// <summary>The wall time of the newest record, in microseconds since 1970. Never less than in a record before it.</summary>
    public long WallMicroseconds => _wallUs;

    /// <summary>
    /// Shard time at this moment, as far as this replica knows it: a leader's is <see cref="Now"/>, and another replica counts on from the newest record that
    /// it has. Any thread.
    /// </summary>
    public long Present => Volatile.Read(ref _aheadOfBoot) + WithoutDrift(time.GetElapsedTime(0));

    /// <summary>The shard time that a record would have now. Only a leader's is meaningful.</summary>
    public long Now => _begunUs + WithoutDrift(time.GetElapsedTime(_begunAt));

    /// <summary>Takes the times of an existing record that is applied.</summary>
    /// <param name="microseconds">Its shard time.</param>
    /// <param name="wallMicroseconds">The wall time of the newest record that has one; 0 if none has.</param>
    public void Saw(long microseconds, long wallMicroseconds)
    {
        if (microseconds > Microseconds)
            CountOn(Microseconds = microseconds, time.GetTimestamp());
        // The shard time of a record without a wall time was shown as its wall time.
        _wallUs = Math.Max(_wallUs, wallMicroseconds == 0 ? microseconds : wallMicroseconds);
    }

    /// <summary>Sets the times of a store's published state. What was recorded after it is dropped, or read again.</summary>
    public void Reset(PageStore pages)
    {
        (Microseconds, _wallUs) = (0, 0);
        CountOn(0, time.GetTimestamp());
        Saw(pages.Roots.Published.ShardTime, pages.Roots.Published.WallTime);
    }

    /// <summary>Begins to count for a leadership, whose first record is made now.</summary>
    /// <param name="wallTime">The wall clock.</param>
    /// <param name="heard">What this replica last heard in the epoch of its last record. Used only if it was sent after that record was made: what is older
    /// would take drift for time.</param>
    public void Open(DateTimeOffset wallTime, HeardTime heard)
    {
        // A new shard has nothing that could end. It begins with a number that people can read.
        if (Microseconds == 0)
            Microseconds = ToMicroseconds(wallTime);
        else if (heard.Microseconds >= Microseconds)
            Microseconds = heard.Microseconds + WithoutDrift(heard.Ago);
        (_begunUs, _begunAt) = (Microseconds, time.GetTimestamp());
        CountOn(_begunUs, _begunAt);
        SeeWall(wallTime);
    }

    /// <summary>Advances the times for a later record.</summary>
    public void Step(DateTimeOffset wallTime)
    {
        Microseconds = Now;
        SeeWall(wallTime);
    }

    /// <summary>The time until a record can have this shard time, at most a day.</summary>
    public TimeSpan Until(long microseconds)
    {
        var left = Math.Clamp(microseconds - Now, 0, TimeSpan.MicrosecondsPerDay);
        return TimeSpan.FromMicroseconds(left + (left * driftPermille / (1_000 - driftPermille)));
    }

    // One word, so that readers on other threads never see half of a change.
    private void CountOn(long microseconds, long at) => Volatile.Write(ref _aheadOfBoot, microseconds - WithoutDrift(time.GetElapsedTime(0, at)));

    private void SeeWall(DateTimeOffset wallTime) => _wallUs = Math.Max(_wallUs, ToMicroseconds(wallTime));

    private long WithoutDrift(TimeSpan passed)
    {
        var us = passed.Ticks / TimeSpan.TicksPerMicrosecond;
        // The drift is rounded up, so that rounding never makes the clock faster.
        return us - (((us * driftPermille) + 999) / 1_000);
    }

    private static long ToMicroseconds(DateTimeOffset wallTime) => (wallTime - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond;
}

/// <summary>A shard time that the leader of an epoch has sent, and how long ago it was heard. The default: nothing was heard.</summary>
/// <param name="Microseconds">The shard time.</param>
/// <param name="Ago">The time since then, by this replica's boot clock.</param>
internal readonly record struct HeardTime(long Microseconds, TimeSpan Ago);
