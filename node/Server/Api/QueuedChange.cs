using KvCluster.Storage.Transactions;

namespace KvCluster.Node.Api;

/// <summary>A change that was handed to its shard, for whoever may have to say that nobody waits for it any more.</summary>
/// <param name="Request">Belongs to the store, and to another call once this one is answered.</param>
/// <param name="Life">By which the request knows whether it is still the same change.</param>
internal readonly record struct QueuedChange(WriteRequest Request, long Life)
{
    /// <summary>Ends it if it has not had its turn.</summary>
    public void GiveUp() => Request.GiveUp(Life);

    /// <summary>Of a unary call: ends it when the call's caller is gone. To be disposed of when it is answered.</summary>
    public CancellationTokenRegistration GiveUpWith(CancellationToken caller) =>
        caller.CanBeCanceled ? caller.UnsafeRegister(static change => ((QueuedChange)change!).GiveUp(), this) : default;
}
