namespace KvCluster.Client.Runtime;

/// <summary>
/// Time, chance and threads as the routing of calls takes them: a process has those of its machine, the simulation its own, with which a run replays. Immutable; any thread.
/// </summary>
/// <param name="time">Waits and deadlines.</param>
/// <param name="chance">From 0 to 1, spreads repetitions.</param>
/// <param name="waits">On which threads those go on who wait: <see cref="TaskCreationOptions.RunContinuationsAsynchronously"/>, so that whoever brings news does not do their work.</param>
internal sealed class ClientRuntime(TimeProvider time, Func<double> chance, TaskCreationOptions waits)
{
    /// <summary>The machine's.</summary>
    public static ClientRuntime Machine { get; } = new(TimeProvider.System, Random.Shared.NextDouble, TaskCreationOptions.RunContinuationsAsynchronously);

    public TimeProvider Time { get; } = time;

    public Func<double> Chance { get; } = chance;

    /// <summary>What deadlines are compared with, in milliseconds: of a process <see cref="Environment.TickCount64"/>.</summary>
    public long NowMs => Time == TimeProvider.System ? Environment.TickCount64 : (long)Time.GetElapsedTime(0).TotalMilliseconds;

    /// <summary>Something to wait for.</summary>
    public TaskCompletionSource NewSignal() => new(waits);

    /// <inheritdoc cref="NewSignal()"/>
    public TaskCompletionSource<T> NewSignal<T>() => new(waits);

    /// <summary>The time left until a deadline; none once it has passed.</summary>
    public TimeSpan Left(long deadlineMs) => TimeSpan.FromMilliseconds(Math.Clamp(deadlineMs - NowMs, 0, int.MaxValue));
}
