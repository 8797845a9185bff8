namespace KvCluster.Client;

/// <summary>
/// Something of the cluster that ends unless it is renewed in time, such as a session. It is renewed by a loop of its own until it is stopped or lost. Any
/// thread may ask for its state.
/// </summary>
/// <remarks>
/// The cluster counts from when it takes a renewal, and this counts from when the renewal was sent, which is earlier. So whoever asks before it is lost here
/// has it there, too. After a pause of the process the answer is right at once, and only <see cref="Lost"/> comes late, because it needs a timer.
/// </remarks>
internal sealed class Lease
{
    private static readonly TimeSpan RetryPause = TimeSpan.FromMilliseconds(100);

    private readonly TimeProvider _time;
    private readonly Func<CancellationToken, Task<TimeSpan>> _renewAsync;
    private readonly CancellationTokenSource _lost = new();
    private readonly CancellationTokenSource _stopped = new();
    private readonly Task _renewing;
    private readonly Lazy<Task> _stopping;
    private readonly Lock _lock = new();

    // Under the lock: when it was last renewed, and how long it lives from then on.
    private long _renewedAt;
    private TimeSpan _lifetime;

    /// <summary>Begins to renew it.</summary>
    /// <param name="time">The clock.</param>
    /// <param name="begunAt">The clock's time before it was asked for.</param>
    /// <param name="lifetime">How long it lives.</param>
    /// <param name="renewAsync">Renews it, and returns how long it lives from then on; zero: it has ended.</param>
    public Lease(TimeProvider time, long begunAt, TimeSpan lifetime, Func<CancellationToken, Task<TimeSpan>> renewAsync)
    {
        (_time, _renewedAt, _lifetime, _renewAsync, _stopping) = (time, begunAt, lifetime, renewAsync, new Lazy<Task>(EndAsync));
        _renewing = RenewAsync();
    }

    /// <summary>Cancelled when it is lost or stopped.</summary>
    public CancellationToken Lost => _lost.Token;

    /// <summary>Whether it has ended, may have ended, or was stopped.</summary>
    public bool IsLost => _lost.IsCancellationRequested || TimeLeft == TimeSpan.Zero;

    /// <summary>How long it certainly lives; zero if it is lost. A hundredth of its life is left for clocks that do not run alike.</summary>
    public TimeSpan TimeLeft
    {
        get
        {
            if (_lost.IsCancellationRequested)
                return TimeSpan.Zero;
            lock (_lock)
            {
                var left = _lifetime - (_lifetime / 100) - _time.GetElapsedTime(_renewedAt);
                return left > TimeSpan.Zero ? left : TimeSpan.Zero;
            }
        }
    }

    /// <summary>Ends the renewals. From now on it is lost. It may be called again, and fails each time if it fails.</summary>
    /// <exception cref="AggregateException">What a user had registered on <see cref="Lost"/> threw exceptions.</exception>
    public Task StopAsync() => _stopping.Value;

    private async Task EndAsync()
    {
        await _stopped.CancelAsync().ConfigureAwait(false);
        await _lost.CancelAsync().ConfigureAwait(false);
        await _renewing.ConfigureAwait(false);
    }

    // Ends when it is stopped, or when it is lost, which it stays.
    private async Task RenewAsync()
    {
        var pause = TimeSpan.Zero;
        try
        {
            while (true)
            {
                await Task.Delay(pause, _time, _stopped.Token).ConfigureAwait(false);
                var left = TimeLeft;
                if (left == TimeSpan.Zero)
                    return;
                // Renewed when a third of its life is over. So there is time for a change of leaders.
                pause = left - (_lifetime * 2 / 3);
                if (pause <= TimeSpan.Zero)
                    pause = await TryRenewAsync(left).ConfigureAwait(false) ? TimeSpan.Zero : Least(RetryPause, TimeLeft);
            }
        }
        catch (OperationCanceledException) when (_stopped.IsCancellationRequested)
        {
            // Whoever stops it waits for this.
        }
        finally
        {
            await _lost.CancelAsync().ConfigureAwait(false);
        }
    }

    /// <summary>Renews it, or hears that it has ended.</summary>
    /// <returns>False if there was no answer.</returns>
    private async Task<bool> TryRenewAsync(TimeSpan left)
    {
        using var ends = new CancellationTokenSource(left, _time);
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(ends.Token, _stopped.Token);
        var began = _time.GetTimestamp();
        try
        {
            var lifetime = await _renewAsync(limit.Token).WaitAsync(limit.Token).ConfigureAwait(false);
            lock (_lock)
                (_renewedAt, _lifetime) = (began, lifetime);
            return true;
        }
        catch (Exception failure) when (failure is KvException or ObjectDisposedException
            || (failure is OperationCanceledException && !_stopped.IsCancellationRequested))
        {
            // Another attempt may succeed. Without one, it is lost when its time is over.
            return false;
        }
    }

    private static TimeSpan Least(TimeSpan one, TimeSpan other) => one < other ? one : other;
}
