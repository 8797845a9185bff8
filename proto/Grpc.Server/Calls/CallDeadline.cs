namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// The deadline of a call, with a timer that is shared by the calls of one pooled object. If a tick for a call that has ended comes late, the next call's
/// deadline has not passed, so the tick has no effect.
/// </summary>
internal sealed class CallDeadline
{
    /// <summary>The longest time that a timer can wait. No process runs until a later deadline.</summary>
    private const long WaitMsMax = uint.MaxValue - 2;

    private readonly Timer _timer;
    private long _dueTickMs;

    public CallDeadline(ServerCall call) =>
        _timer = new Timer(static state => ((ServerCall)state!).PassDeadline(), call, Timeout.Infinite, Timeout.Infinite);

    public DateTime Utc { get; private set; }

    public void Arm(TimeSpan remaining)
    {
        var waitMs = Math.Min((long)Math.Ceiling(remaining.TotalMilliseconds), WaitMsMax);
        Utc = DateTime.UtcNow.AddMilliseconds(waitMs);
        _dueTickMs = Environment.TickCount64 + waitMs;
        _timer.Change(waitMs, Timeout.Infinite);
    }

    public void Disarm() => _timer.Change(Timeout.Infinite, Timeout.Infinite);

    /// <summary>Called by the tick. If it came early, it sets the timer again.</summary>
    public bool HasPassed()
    {
        var remainingMs = _dueTickMs - Environment.TickCount64;
        if (remainingMs <= 0)
            return true;
        _timer.Change(remainingMs, Timeout.Infinite);
        return false;
    }
}
