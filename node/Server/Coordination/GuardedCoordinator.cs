namespace KvCluster.Node.Coordination;

/// <summary>A node's coordinator, whose every change is guarded.</summary>
/// <param name="inner">The coordinator.</param>
/// <param name="guard">What the node goes by at the moment. Any thread.</param>
internal sealed class GuardedCoordinator(ICoordinator inner, Func<CoordinatorGuard> guard) : PassingCoordinator(inner)
{
    public override CoordinatorGuard? Guard => guard();

    /// <summary>
    /// Reads the cluster's record after a guard did not hold. Returns the guard by it if the record changed in the same store and recovery, as when the levels
    /// are raised; otherwise null. An expected revision that was read before is as good under that guard.
    /// </summary>
    public Func<CoordinatorGuard, CancellationToken, Task<CoordinatorGuard?>> Renew { get; init; } = static (_, _) => Task.FromResult<CoordinatorGuard?>(null);

    /// <summary>
    /// Called if a guard does not hold that is still in force: it was not of the time before a recovery that this node has joined. Must not wait.
    /// </summary>
    public Action Alarmed { get; init; } = static () => { };

    public override async Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
    {
        try
        {
            return await Inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken).ConfigureAwait(false);
        }
        catch (CoordinatorGuardException) when (guardedBy is not null)
        {
            if (await Renew(guardedBy, cancellationToken).ConfigureAwait(false) is { } renewed)
                return await Inner.CompareAndSetAsync(key, expectedRevision, value, lease, renewed, cancellationToken).ConfigureAwait(false);
            if (guard().Value == guardedBy.Value)
                Alarmed();
            throw;
        }
    }
}
