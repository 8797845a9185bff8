using KvCluster.Node.Coordination;

namespace KvCluster.Tests.Node;

/// <summary>
/// A coordinator that refuses the first changes of one key without applying them, as etcd does with RESOURCE_EXHAUSTED when too many requests wait.
/// </summary>
internal sealed class RefusingCoordinator(ICoordinator inner, string key, int refusals) : ICoordinator
{
    private int _left = refusals;

    /// <summary>Refusals still to come. Below 0 there are none left, and its magnitude counts the changes since.</summary>
    public int Left => Volatile.Read(ref _left);

    public Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) => inner.GetAsync(key, cancellationToken);

    public Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) => inner.ListAsync(prefix, cancellationToken);

    public Task<CompareAndSetResult> CompareAndSetAsync(string changed, long expectedRevision, string? value, long lease, CancellationToken cancellationToken) =>
        changed == key && Interlocked.Decrement(ref _left) >= 0
            ? throw new CoordinatorUnavailableException("The coordinator refused a request, which changed nothing: ResourceExhausted etcdserver: too many requests")
            : inner.CompareAndSetAsync(changed, expectedRevision, value, lease, cancellationToken);

    public Task<CompareAndSetResult> CompareAndSetAsync(string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
        CompareAndSetAsync(changed, expectedRevision, value, lease, cancellationToken);

    public ICoordinator Anew() => inner.Anew();

    public void ContinueAs(ICoordinator anew) => inner.ContinueAs(anew);

    public IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken) => inner.WatchAsync(prefix, fromRevision, cancellationToken);

    public Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) => inner.GrantLeaseAsync(timeToLive, cancellationToken);

    public Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) => inner.KeepAliveAsync(lease, cancellationToken);

    public Task RevokeAsync(long lease, CancellationToken cancellationToken) => inner.RevokeAsync(lease, cancellationToken);

    public ValueTask DisposeAsync() => inner.DisposeAsync();
}
