using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Context;

/// <summary>
/// Slows what takes memory as the memory nears a bound. Above a first amount, what is taken per second is at most what is still free, so the bound is
/// approached and, apart from the steps under way, not passed. Something is always granted, so nobody is stopped. Those that share one take turns: a step
/// begins when time has paid for all turns before it. What a step takes beyond its turn is owed by all who follow, for as long as it takes. Any thread.
/// </summary>
/// <param name="slowFrom">Bytes in use up to which nobody is slowed.</param>
/// <param name="bytesMax">Bytes in use at which the least is granted.</param>
/// <param name="pauseMax">The longest pause before the turn is looked at again, because memory may have been returned meanwhile.</param>
/// <param name="time">The clock of the pauses.</param>
internal sealed class GrowthPace(long slowFrom, long bytesMax, TimeSpan pauseMax, TimeProvider time)
{
    /// <summary>The pages that a step may make however little is free. Fewer would cost more in steps than they save.</summary>
    public const int PagesMin = 8;

    /// <summary>The room that is left lasts for at least this long. A checkpoint of some hundred megabytes takes about that.</summary>
    private static readonly TimeSpan Horizon = TimeSpan.FromSeconds(1);

    /// <summary>A step is made so small that its pause is about this long.</summary>
    private static readonly TimeSpan StepPause = TimeSpan.FromMilliseconds(20);

    private readonly Lock _gate = new();

    /// <summary>Bytes of all turns since the start.</summary>
    private long _granted;

    /// <summary>How many of them time has paid for. Steps that took more than their turns have lowered it.</summary>
    private double _paid;
    private long _paidAt;

    /// <summary>Whether this much in use slows anybody.</summary>
    public bool Slows(long used) => used > slowFrom;

    /// <summary>The pages that one step may make.</summary>
    /// <param name="used">Bytes in use.</param>
    /// <param name="writers">Stores that take steps and share the rate.</param>
    public int PagesMax(long used, int writers) =>
        Slows(used) ? (int)Math.Clamp(RateAt(used) * StepPause.TotalSeconds / Math.Max(1, writers) / Page.Bytes, PagesMin, int.MaxValue) : int.MaxValue;

    /// <summary>Takes a turn for one step, after all that were taken before; none if nobody is slowed.</summary>
    /// <inheritdoc cref="PagesMax" path="/param"/>
    public Turn Enter(long used, int writers)
    {
        if (!Slows(used))
            return default;
        var bytes = (long)PagesMax(used, writers) * Page.Bytes;
        lock (_gate)
        {
            PayLocked(used);
            var turn = new Turn(_granted, bytes);
            _granted += bytes;
            return turn;
        }
    }

    /// <summary>How long to wait before asking again; zero if the turn has come, or nobody is slowed any more.</summary>
    public TimeSpan WaitFor(Turn turn, long used)
    {
        if (turn.IsNone || !Slows(used))
            return TimeSpan.Zero;
        double left;
        lock (_gate)
        {
            PayLocked(used);
            left = turn.Position - _paid;
        }
        return left <= 0 ? TimeSpan.Zero : TimeSpan.FromSeconds(Math.Min(left / RateAt(used), pauseMax.TotalSeconds));
    }

    /// <summary>A step has ended, and its turn with it.</summary>
    /// <param name="turn">The turn; none if the step began when nobody was slowed.</param>
    /// <param name="used">Bytes in use after the step.</param>
    /// <param name="grown">Bytes that the step took.</param>
    public void End(Turn turn, long used, long grown)
    {
        if (turn.IsNone && !Slows(used))
            return;
        lock (_gate)
        {
            PayLocked(used);
            _paid -= Math.Max(0, grown) - turn.Bytes;
        }
    }

    private void PayLocked(long used)
    {
        Invariant.CheckHeld(_gate);
        var now = time.GetTimestamp();
        _paid = Math.Min(_granted, _paid + (RateAt(used) * time.GetElapsedTime(_paidAt, now).TotalSeconds));
        _paidAt = now;
    }

    // In bytes per second.
    private double RateAt(long used) =>
        (Math.Max(0, bytesMax - used) / Horizon.TotalSeconds) + (PagesMin * Page.Bytes / pauseMax.TotalSeconds);

    /// <summary>A place in the order of steps.</summary>
    /// <param name="Position">Bytes of the turns before it.</param>
    /// <param name="Bytes">Bytes that its step should not exceed.</param>
    public readonly record struct Turn(long Position, long Bytes)
    {
        /// <summary>Whether this is no turn.</summary>
        public bool IsNone => Bytes == 0;
    }
}
