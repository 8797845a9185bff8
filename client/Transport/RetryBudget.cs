using KvCluster.Client.Runtime;

namespace KvCluster.Client.Transport;

/// <summary>
/// How many repetitions a client makes of its own accord: so many a second, and a burst of as many. Beyond that a call waits longer for its next attempt, or
/// for news of a leader, but does not fail: a cluster that has too much to do is not given more by those who wait for it. Thread-safe.
/// </summary>
/// <remarks>1,000 a second is what a few hundred callers make who wait for a leader, and a small part of what a node serves.</remarks>
internal sealed class RetryBudget(ClientRuntime runtime)
{
    private const double PerSecond = 1_000;
    private readonly Lock _lock = new();
    private double _left = PerSecond;
    private long _filledMs = runtime.NowMs;

    /// <summary>Takes one repetition; false: there is none for the moment.</summary>
    public bool TryTake()
    {
        lock (_lock)
        {
            var now = runtime.NowMs;
            _left = Math.Min(PerSecond, _left + ((now - _filledMs) * PerSecond / 1_000));
            _filledMs = now;
            if (_left < 1)
                return false;
            _left--;
            return true;
        }
    }
}
