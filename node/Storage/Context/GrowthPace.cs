using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Context;

/// <summary>
/// Slows what takes memory as the memory nears a bound. Above a first amount, what is taken per second is at most what is still free, so the bound is
/// approached and, apart from a step that is under way, not passed. Something is always granted, so nobody is stopped. Any thread; those that share one
/// take turns, and each pauses until its step is paid for.
/// </summary>
/// <param name="slowFrom">Bytes in use up to which nobody is slowed.</param>
/// <param name="bytesMax">Bytes in use at which the least is granted.</param>
/// <param name="pauseMax">The longest pause after one step.</param>
/// <param name="time">The clock of the pauses.</param>
internal sealed class GrowthPace(long slowFrom, long bytesMax, TimeSpan pauseMax, TimeProvider time)
{
    /// <summary>The pages that a step may make however little is free. Fewer would cost more in steps than they save.</summary>
    public const int PagesLeast = 8;

    /// <summary>The room that is left lasts for at least this long. A checkpoint of some hundred megabytes takes about that.</summary>
    private static readonly TimeSpan Horizon = TimeSpan.FromSeconds(1);

    /// <summary>A step is made so small that its pause is about this long.</summary>
    private static readonly TimeSpan StepPause = TimeSpan.FromMilliseconds(20);

    private long _paidUntil = long.MinValue;

    /// <summary>Whether this much in use slows anybody.</summary>
    public bool Slows(long used) => used > slowFrom;

    /// <summary>The pages that one step may make.</summary>
    /// <param name="used">Bytes in use.</param>
    /// <param name="writers">Stores that take steps and share the rate.</param>
    public int PagesMax(long used, int writers) =>
        Slows(used) ? (int)Math.Clamp(RateAt(used) * StepPause.TotalSeconds / Math.Max(1, writers) / Page.Bytes, PagesLeast, int.MaxValue) : int.MaxValue;

    /// <summary>How long to wait after a step.</summary>
    /// <param name="used">Bytes in use after it.</param>
    /// <param name="grown">Bytes that it took.</param>
    public TimeSpan PauseAfter(long used, long grown)
    {
        if (!Slows(used) || grown <= 0)
            return TimeSpan.Zero;
        var cost = (long)(grown / RateAt(used) * time.TimestampFrequency);
        var now = time.GetTimestamp();
        var latest = now + (long)(pauseMax.TotalSeconds * time.TimestampFrequency);
        while (true)
        {
            var before = Volatile.Read(ref _paidUntil);
            var until = Math.Min(Math.Max(before, now) + cost, latest);
            if (Interlocked.CompareExchange(ref _paidUntil, until, before) == before)
                return time.GetElapsedTime(now, until);
        }
    }

    // In bytes per second.
    private double RateAt(long used) =>
        (Math.Max(0, bytesMax - used) / Horizon.TotalSeconds) + (PagesLeast * Page.Bytes / pauseMax.TotalSeconds);
}
