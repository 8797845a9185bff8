using KvCluster.Client.Runtime;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// The time of a run, which passes a millisecond at a time, and what is to happen in it. Everything goes on on the thread that lets the time pass, so nothing
/// depends on the speed of the machine.
/// </summary>
internal sealed class HostileClock
{
    private static readonly TimeSpan Tick = TimeSpan.FromMilliseconds(1);

    private readonly ManualTime _time = new();
    private readonly PriorityQueue<Action, (long AtMs, long Order)> _events = new();
    private long _order;

    /// <param name="random">For the jitter of the library.</param>
    public HostileClock(Random random) => Runtime = new ClientRuntime(_time, random.NextDouble, TaskCreationOptions.None);

    public ClientRuntime Runtime { get; }

    public long NowMs => Runtime.NowMs;

    /// <summary>Has something happen later, in a millisecond at the soonest.</summary>
    public void After(long delayMs, Action action) => _events.Enqueue(action, (NowMs + Math.Max(1, delayMs), _order++));

    public void Pass()
    {
        _time.Advance(Tick);
        while (_events.TryPeek(out var action, out var due) && due.AtMs <= NowMs)
        {
            _events.Dequeue();
            action();
        }
    }
}
