namespace KvCluster.Storage.Transactions;

/// <summary>Refers to a change that was submitted to its store, so that it can be cancelled. Any thread.</summary>
/// <param name="Request">Belongs to the store, and to another call once this one is answered.</param>
/// <param name="Life">Tells whether the request is still the same change.</param>
internal readonly record struct QueuedChange(WriteRequest Request, long Life)
{
    /// <summary>Cancels the change if it is still queued.</summary>
    public void GiveUp() => Request.GiveUp(Life);

    /// <summary>Cancels the change when its caller does not wait any more. To be disposed when the change is answered.</summary>
    public CancellationTokenRegistration GiveUpWith(CancellationToken caller) =>
        caller.CanBeCanceled ? caller.UnsafeRegister(static change => ((QueuedChange)change!).GiveUp(), this) : default;
}
