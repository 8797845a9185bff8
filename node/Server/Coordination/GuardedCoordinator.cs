namespace KvCluster.Node.Coordination;

/// <summary>A node's coordinator, whose every change is guarded. The inner coordinator stays its owner's.</summary>
/// <param name="inner">The coordinator.</param>
/// <param name="guard">What the node goes by at the moment. Any thread.</param>
internal sealed class GuardedCoordinator(ICoordinator inner, Func<CoordinatorGuard> guard) : ICoordinator
{
    public CoordinatorGuard? Guard => guard();

    /// <summary>
    /// Reads the cluster's record after a guard did not hold. Returns the guard by it if the record changed in the same store and recovery, as when the levels are raised; otherwise null. An
    /// expected revision that was read before is as good under that guard.
    /// </summary>
    public Func<CoordinatorGuard, CancellationToken, Task<CoordinatorGuard?>> Renew { get; init; } = static (_, _) => Task.FromResult<CoordinatorGuard?>(null);

    /// <summary>Called if a guard does not hold for another reason. Must not wait.</summary>
    public Action Alarmed { get; init; } = static () => { };

    public Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) => inner.GetAsync(key, cancellationToken);

    public Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) => inner.ListAsync(prefix, cancellationToken);

    public Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CancellationToken cancellationToken) =>
        CompareAndSetAsync(key, expectedRevision, value, lease, Guard, cancellationToken);

    public async Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
    {
        try
        {
            return await inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken).ConfigureAwait(false);
        }
        catch (CoordinatorGuardException) when (guardedBy is not null)
        {
            if (await Renew(guardedBy, cancellationToken).ConfigureAwait(false) is { } renewed)
                return await inner.CompareAndSetAsync(key, expectedRevision, value, lease, renewed, cancellationToken).ConfigureAwait(false);
            Alarmed();
            throw;
        }
    }

    public IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken) =>
        inner.WatchAsync(prefix, fromRevision, cancellationToken);

    public Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) => inner.GrantLeaseAsync(timeToLive, cancellationToken);

    public Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) => inner.KeepAliveAsync(lease, cancellationToken);

    public Task RevokeAsync(long lease, CancellationToken cancellationToken) => inner.RevokeAsync(lease, cancellationToken);

    public ICoordinator Anew() => inner.Anew();

    public void ContinueAs(ICoordinator anew) => inner.ContinueAs(anew);

    public ValueTask DisposeAsync() => ValueTask.CompletedTask;
}
