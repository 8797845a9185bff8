namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// When a call ends at the latest, with a timer that the calls of one pooled object share: a tick that comes late, for a call
/// that has ended, finds the next one's deadline not passed.
/// </summary>
internal sealed class CallDeadline
{
    /// <summary>What a timer can wait; later deadlines are never reached by a process.</summary>
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

    /// <summary>Called by the tick; waits on when it came early.</summary>
    public bool HasPassed()
    {
        var remainingMs = _dueTickMs - Environment.TickCount64;
        if (remainingMs <= 0)
            return true;
        _timer.Change(remainingMs, Timeout.Infinite);
        return false;
    }
}
