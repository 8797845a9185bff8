namespace KvCluster.Node.Coordination;

/// <summary>
/// A coordinator for somebody who does not own it: passes every call on, and stays open when it is disposed of. Derived classes do something on the way.
/// </summary>
/// <param name="inner">The coordinator.</param>
internal class PassingCoordinator(ICoordinator inner) : ICoordinator
{
    public virtual CoordinatorGuard? Guard => Inner.Guard;

    protected ICoordinator Inner { get; } = inner;

    public virtual Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) => Inner.GetAsync(key, cancellationToken);

    public virtual Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) => Inner.ListAsync(prefix, cancellationToken);

    public virtual Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
        Inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken);

    public IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken) =>
        Inner.WatchAsync(prefix, fromRevision, cancellationToken);

    public virtual Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) => Inner.GrantLeaseAsync(timeToLive, cancellationToken);

    public virtual Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) => Inner.KeepAliveAsync(lease, cancellationToken);

    public Task RevokeAsync(long lease, CancellationToken cancellationToken) => Inner.RevokeAsync(lease, cancellationToken);

    public virtual ICoordinator Anew() => Inner.Anew();

    public void ContinueAs(ICoordinator anew) => Inner.ContinueAs(anew);

    public virtual ValueTask DisposeAsync() => ValueTask.CompletedTask;
}
