using KvCluster.Client;
using Medallion.Threading;

namespace KvCluster.Extensions.DistributedLock;

/// <summary>A lock that is held. Every handle that a <see cref="KvDistributedLockProvider"/>'s locks return is one. Thread-safe.</summary>
public sealed class KvDistributedLockHandle : IDistributedSynchronizationHandle
{
    internal KvDistributedLockHandle(KvLock held) => Lock = held;

    /// <summary>The lock, with the condition and the etag by which a former holder is refused.</summary>
    public KvLock Lock { get; }

    /// <summary>Cancelled when the lock is lost or may be lost, and also when it is released (<see cref="KvLock.Lost"/>).</summary>
    public CancellationToken HandleLostToken => Lock.Lost;

    /// <summary>Releases the lock, for which it waits five seconds at most.</summary>
    public void Dispose() => DisposeAsync().AsTask().GetAwaiter().GetResult();

    /// <summary>Releases the lock, for which it waits five seconds at most.</summary>
    public ValueTask DisposeAsync() => Lock.DisposeAsync();
}
