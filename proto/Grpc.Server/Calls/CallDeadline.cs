namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// The deadline of a call, and the token that it and the caller's departure cancel. Shared by the calls of one pooled object, one after the other. The timer
/// takes the lock; the rest is used by the call's own thread. If a tick for a call that has ended comes late, the next call's deadline has not passed, so the
/// tick has no effect.
/// </summary>
internal sealed class CallDeadline : IDisposable
{
    /// <summary>The longest time that a timer can wait. No process runs until a later deadline.</summary>
    private const long WaitMsMax = uint.MaxValue - 2;

    private readonly ServerCall _call;
    private readonly Lock _gate = new();
    private readonly Timer _timer;
    private long _dueTickMs;
    private CancellationTokenSource? _cancellation;
    private CancellationTokenRegistration _abortRegistration;

    public CallDeadline(ServerCall call)
    {
        _call = call;
        _timer = new Timer(static state => ((CallDeadline)state!).Pass(), this, Timeout.Infinite, Timeout.Infinite);
    }

    public DateTime Utc { get; private set; }

    /// <summary>Whether the present call has a deadline.</summary>
    public bool IsArmed { get; private set; }

    public bool HasPassed { get; private set; }

    public void Arm(TimeSpan remaining)
    {
        lock (_gate)
        {
            IsArmed = true;
            var waitMs = Math.Min((long)Math.Ceiling(remaining.TotalMilliseconds), WaitMsMax);
            Utc = DateTime.UtcNow.AddMilliseconds(waitMs);
            _dueTickMs = Environment.TickCount64 + waitMs;
            _timer.Change(waitMs, Timeout.Infinite);
        }
    }

    public void Disarm()
    {
        if (!IsArmed)
            return;
        lock (_gate)
        {
            IsArmed = false;
            HasPassed = false;
            _timer.Change(Timeout.Infinite, Timeout.Infinite);
        }
        _abortRegistration.Dispose();
        _abortRegistration = default;
        // One that is cancelled is not disposed, because that would drop callbacks that have yet to run. It holds nothing.
        if (_cancellation?.TryReset() is false)
            _cancellation = null;
    }

    /// <summary>Spares the finalizer. A tick that comes late finds no call.</summary>
    public void Dispose()
    {
        Disarm();
        _timer.Dispose();
        _cancellation?.Dispose();
    }

    /// <summary>The token of the present call. Made only for handlers that ask for it.</summary>
    public CancellationToken Token()
    {
        lock (_gate)
        {
            if (_cancellation is null || _abortRegistration == default)
            {
                _cancellation ??= new CancellationTokenSource();
                _abortRegistration = _call.RequestAborted.UnsafeRegister(static source => ((CancellationTokenSource)source!).Cancel(), _cancellation);
            }
            if (HasPassed && !_cancellation.IsCancellationRequested)
                _cancellation.Cancel();
            return _cancellation.Token;
        }
    }

    /// <summary>Whether a token is that of the present call.</summary>
    public bool IsOwn(CancellationToken token) => _cancellation is { } own && own.Token == token;

    private void Pass()
    {
        lock (_gate)
        {
            if (!IsArmed)
                return;
            var remainingMs = _dueTickMs - Environment.TickCount64;
            if (remainingMs > 0)
            {
                // The tick came early, or it is that of an earlier call.
                _timer.Change(remainingMs, Timeout.Infinite);
                return;
            }
            HasPassed = true;
            // Marked as cancelled at once, so that it is not reset for the next call. Its callbacks run on another thread, not under the lock.
            _ = _cancellation?.CancelAsync();
            _call.Requests.CancelRead();
        }
    }
}
