namespace KvCluster.Client.Runtime;

/// <summary>
/// The time in which this process ran, in milliseconds. A process that stands still, because it is stopped or its container is frozen, hears nothing from
/// anybody, and that is no silence of the cluster. So whoever gives up after hearing nothing for a time counts by this clock. Thread-safe.
/// </summary>
internal sealed class AwakeClock : IDisposable
{
    private static readonly TimeSpan Tick = TimeSpan.FromMilliseconds(500);

    /// <summary>What lies between two looks beyond this is no time in which the process ran. A pause of the garbage collector is shorter.</summary>
    private const long StepMsMax = 2_000;

    private readonly TimeProvider _time;
    private readonly ITimer _ticking;
    private readonly Lock _lock = new();
    private long _lookedAt;
    private long _awakeMs;

    public AwakeClock(TimeProvider time)
    {
        _time = time;
        _lookedAt = time.GetTimestamp();
        _ticking = time.CreateTimer(static clock => _ = ((AwakeClock)clock!).NowMs, this, Tick, Tick);
    }

    /// <summary>The time since the clock was made.</summary>
    public long NowMs
    {
        get
        {
            lock (_lock)
            {
                var now = _time.GetTimestamp();
                var passedMs = (long)_time.GetElapsedTime(_lookedAt, now).TotalMilliseconds;
                // Fractions of a millisecond stay for the next look.
                if (passedMs > 0)
                    (_awakeMs, _lookedAt) = (_awakeMs + Math.Min(passedMs, StepMsMax), now);
                return _awakeMs;
            }
        }
    }

    public void Dispose() => _ticking.Dispose();
}
