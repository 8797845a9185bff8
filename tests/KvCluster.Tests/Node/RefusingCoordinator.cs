using KvCluster.Node.Coordination;

namespace KvCluster.Tests.Node;

/// <summary>
/// A coordinator that refuses the first changes of one key without applying them, as etcd does with RESOURCE_EXHAUSTED when too many requests wait.
/// </summary>
internal sealed class RefusingCoordinator(ICoordinator inner, string key, int refusals) : PassingCoordinator(inner)
{
    private int _left = refusals;

    /// <summary>Refusals still to come. Below 0 there are none left, and its magnitude counts the changes since.</summary>
    public int Left => Volatile.Read(ref _left);

    public override Task<CompareAndSetResult> CompareAndSetAsync(
        string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
        changed == key && Interlocked.Decrement(ref _left) >= 0
            ? throw new CoordinatorUnavailableException(
                "The coordinator refused a request, which changed nothing: ResourceExhausted etcdserver: too many requests")
            : base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken);

    public override ValueTask DisposeAsync() => Inner.DisposeAsync();
}
