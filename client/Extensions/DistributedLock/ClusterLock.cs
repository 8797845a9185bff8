using KvCluster.Client;
using Medallion.Threading;

namespace KvCluster.Extensions.DistributedLock;

/// <summary>A lock by its name. Those who wait without async hold their thread. Thread-safe; it has no state of its own.</summary>
internal sealed class ClusterLock(IKvClient client, string name, KvKey key, KvLockOptions? options) : IDistributedLock
{
    public string Name => name;

    public IDistributedSynchronizationHandle? TryAcquire(TimeSpan timeout = default, CancellationToken cancellationToken = default) =>
        TryAcquireAsync(timeout, cancellationToken).AsTask().GetAwaiter().GetResult();

    public IDistributedSynchronizationHandle Acquire(TimeSpan? timeout = null, CancellationToken cancellationToken = default) =>
        AcquireAsync(timeout, cancellationToken).AsTask().GetAwaiter().GetResult();

    public async ValueTask<IDistributedSynchronizationHandle?> TryAcquireAsync(TimeSpan timeout = default, CancellationToken cancellationToken = default)
    {
        var held = timeout == Timeout.InfiniteTimeSpan
            ? await KvLock.AcquireAsync(client, key, options, cancellationToken).ConfigureAwait(false)
            : await KvLock.TryAcquireAsync(client, key, timeout, options, cancellationToken).ConfigureAwait(false);
        return held is null ? null : new KvDistributedLockHandle(held);
    }

    public async ValueTask<IDistributedSynchronizationHandle> AcquireAsync(TimeSpan? timeout = null, CancellationToken cancellationToken = default) =>
        await TryAcquireAsync(timeout ?? Timeout.InfiniteTimeSpan, cancellationToken).ConfigureAwait(false)
        ?? throw new TimeoutException($"Somebody else holds the lock '{name}', also after {timeout}. It was not acquired; wait longer, or try again.");
}
