using KvCluster.Client.Runtime;

namespace KvCluster.Client.Transport;

/// <summary>
/// Limits how many repetitions a client makes of its own accord, by a rate per second and a burst of the same size. Beyond that a call does not fail, but
/// waits longer for its next attempt or for a new leader, and a read is not sent to a second replica, so that waiting callers do not add to the load of an
/// overloaded cluster. Thread-safe.
/// </summary>
/// <remarks>1,000 a second is about what a few hundred callers that wait for a leader cause, and a small part of what a node can serve.</remarks>
internal sealed class RetryBudget(ClientRuntime runtime)
{
    private const double PerSecond = 1_000;
    private readonly Lock _lock = new();
    private double _left = PerSecond;
    private long _filledMs = runtime.NowMs;

    /// <summary>Takes one repetition; returns false if there is none for the moment.</summary>
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
