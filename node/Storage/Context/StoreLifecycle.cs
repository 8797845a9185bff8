using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Context;

/// <summary>How far a store is in its life. It only goes forward.</summary>
internal enum StorePhase
{
    /// <summary>The store works.</summary>
    Open,

    /// <summary>A failure has ended it, and every waiter got the reason. It still has to be stopped or closed.</summary>
    Failed,

    /// <summary>The store was told to stop or to close. Nothing new begins, and no event follows.</summary>
    Stopping,

    /// <summary>Every waiter has its answer. The journal still writes what was queued.</summary>
    Stopped,

    /// <summary>Nothing of this store changes its directory any more. Snapshots may still be open.</summary>
    Quiet,

    /// <summary>The data file is released, or left to readers that did not end in time.</summary>
    Closed,
}

/// <summary>
/// The phase of a store and the failure that ended it. Any thread reads it. It is told to stop on any thread; all else happens on the writer executor, or
/// when the executors no longer run anything of the store. What else a failure ends is up to the store's owner.
/// </summary>
internal sealed class StoreLifecycle
{
    private readonly Lock _lock = new();
    private volatile StorePhase _phase;
    private volatile Exception? _failure;

    /// <summary>The current phase.</summary>
    public StorePhase Phase => _phase;

    /// <summary>What ended the store; null while it works, and when it ended without a failure. Kept in all later phases.</summary>
    public Exception? Failure => _failure;

    /// <summary>Whether the store has failed or was told to stop.</summary>
    public bool HasEnded => _phase != StorePhase.Open;

    /// <summary>Whether every waiter has its answer, so that nobody answers later ones.</summary>
    public bool IsStopped => _phase >= StorePhase.Stopped;

    /// <summary>Called once, by <see cref="Fail"/>, with the failure that ended the store.</summary>
    public Action<Exception>? HasFailed { private get; set; }

    /// <summary>Ends the store with its first failure. False, with nothing changed, when it has ended before.</summary>
    public bool TryFail(Exception failure)
    {
        lock (_lock)
        {
            if (_phase != StorePhase.Open)
                return false;
            // The failure is set before the phase, so that a thread that sees the phase finds the reason.
            _failure = failure;
            _phase = StorePhase.Failed;
            return true;
        }
    }

    /// <summary>Ends the store with its first failure, and has every waiter answered. Writer executor.</summary>
    public void Fail(Exception failure)
    {
        if (TryFail(failure))
            HasFailed?.Invoke(failure);
    }

    /// <summary>Does something while the store works. An exception ends the store and is not thrown. Writer executor.</summary>
    public void Guard(Action action)
    {
        if (HasEnded)
            return;
        try
        {
            action();
        }
        catch (Exception failure)
        {
            Fail(failure);
        }
    }

    /// <summary>
    /// Work that is done as by <see cref="Guard"/>, under the name of the method. To be created once and posted to the writer executor often.
    /// </summary>
    public IWorkItem Guarded(Action action) => new GuardedWork(this, action);

    /// <summary>Tells the store to stop. False when it was told before. Any thread.</summary>
    public bool TryStop()
    {
        lock (_lock)
        {
            if (_phase >= StorePhase.Stopping)
                return false;
            _phase = StorePhase.Stopping;
            return true;
        }
    }

    /// <summary>Goes from a phase to the next one. From <see cref="StorePhase.Stopping"/> on none is left out.</summary>
    public void Advance(StorePhase next)
    {
        lock (_lock)
        {
            Invariant.Check(next > StorePhase.Stopping && next == _phase + 1, $"A store cannot go from {_phase} to {next}.");
            _phase = next;
        }
    }

    private sealed class GuardedWork(StoreLifecycle life, Action action) : IWorkItem
    {
        /// <inheritdoc/>
        public void Execute() => life.Guard(action);

        /// <summary>The name of the method, for diagnostics.</summary>
        public override string ToString() => WorkAction.NameOf(action);
    }
}
