namespace KvCluster.Client.Runtime;

/// <summary>
/// The time, randomness and threads used by the routing of calls. A process uses those of its machine; the simulation passes its own, with which a run can be
/// replayed. Immutable; any thread.
/// </summary>
/// <param name="time">For waits and deadlines.</param>
/// <param name="chance">Returns random numbers from 0 to 1, for jitter.</param>
/// <param name="waits">How continuations of waits run: with <see cref="TaskCreationOptions.RunContinuationsAsynchronously"/>, they do not run on the thread
/// that completes the wait.</param>
internal sealed class ClientRuntime(TimeProvider time, Func<double> chance, TaskCreationOptions waits)
{
    /// <summary>The time, randomness and threads of the machine.</summary>
    public static ClientRuntime Machine { get; } = new(TimeProvider.System, Random.Shared.NextDouble, TaskCreationOptions.RunContinuationsAsynchronously);

    public TimeProvider Time { get; } = time;

    public Func<double> Chance { get; } = chance;

    /// <summary>The time that deadlines are compared with, in milliseconds; in a process <see cref="Environment.TickCount64"/>.</summary>
    public long NowMs => Time == TimeProvider.System ? Environment.TickCount64 : (long)Time.GetElapsedTime(0).TotalMilliseconds;

    /// <summary>Whether whatever waits continues on the thread that ends the wait.</summary>
    public bool ContinuesInline => (waits & TaskCreationOptions.RunContinuationsAsynchronously) == 0;

    /// <summary>Creates a signal to wait for.</summary>
    public TaskCompletionSource NewSignal() => new(waits);

    /// <inheritdoc cref="NewSignal()"/>
    public TaskCompletionSource<T> NewSignal<T>() => new(waits);

    /// <summary>Cancels what waits, which goes on as <see cref="ContinuesInline"/> says.</summary>
    public Task CancelAsync(CancellationTokenSource source)
    {
        if (!ContinuesInline)
            return source.CancelAsync();
        source.Cancel();
        return Task.CompletedTask;
    }

    /// <summary>
    /// Waits for some time, or until the wait is cancelled. Whoever waits goes on as <see cref="ContinuesInline"/> says, also after a cancellation. After a
    /// <see cref="Task.Delay(TimeSpan, TimeProvider, CancellationToken)"/> that was cancelled, everybody goes on on the thread pool.
    /// </summary>
    public Task DelayAsync(TimeSpan delay, CancellationToken cancellationToken) => ContinuesInline
        ? Task.Delay(delay, Time, CancellationToken.None).WaitAsync(cancellationToken)
        : Task.Delay(delay, Time, cancellationToken);

    /// <summary>The time left until a deadline; none once it has passed.</summary>
    public TimeSpan Left(long deadlineMs) => TimeSpan.FromMilliseconds(Math.Clamp(deadlineMs - NowMs, 0, int.MaxValue));
}
