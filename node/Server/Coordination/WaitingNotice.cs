// What this node says in the coordinator while that has no record of its cluster: that it has data of one, so that nobody creates another beside it, or that
// it has none and may be one of the first nodes of a new one. Under a lease, so that it goes with the process. It is no record of the cluster: only who creates
// one looks at it (WaitingNodes). Used by one task at a time: ClusterEntry as the node starts, CoordinatorFollowing while it runs.
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>Keeps the key of a node that waits for the cluster's record.</summary>
/// <param name="keys">The cluster's keys.</param>
/// <param name="node">This node.</param>
/// <param name="has">The id of the cluster of which this node has data, or <see cref="WaitingNodes.Empty"/>.</param>
/// <param name="clock">The boot clock.</param>
internal sealed class WaitingNotice(CoordinatorKeys keys, NodeId node, string has, TimeProvider clock)
{
    private static readonly TimeSpan LeaseTime = TimeSpan.FromSeconds(10);

    /// <summary>Callers ask several times a second, or every three seconds. Allows several attempts within a lease.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(1);

    private readonly string _key = keys.WaitingOf(node);
    private long _lease;
    private long _revision;
    private long _keptAt;

    /// <summary>Puts the key, or keeps it. To be called again and again.</summary>
    /// <param name="coordinator">The coordinator, not guarded.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="CoordinatorUnavailableException">No answer.</exception>
    public async Task KeepAsync(ICoordinator coordinator, CancellationToken cancellationToken)
    {
        if (_lease != 0 && clock.GetElapsedTime(_keptAt) < Interval)
            return;
        // Somebody may have deleted all keys, although the lease runs. And the key of an earlier process may still be there.
        var read = await coordinator.GetAsync(_key, cancellationToken).ConfigureAwait(false);
        if (_lease == 0 || read.ModRevision != _revision || !await coordinator.KeepAliveAsync(_lease, cancellationToken).ConfigureAwait(false))
        {
            _lease = 0;
            var lease = await coordinator.GrantLeaseAsync(LeaseTime, cancellationToken).ConfigureAwait(false);
            var set = await coordinator.CompareAndSetAsync(_key, read.ModRevision, has, lease, guardedBy: null, cancellationToken).ConfigureAwait(false);
            if (set.Outcome != SetOutcome.Won)
                return;
            (_lease, _revision) = (lease, set.Revision);
        }
        _keptAt = clock.GetTimestamp();
    }

    /// <summary>
    /// Removes the key, because the record is there, if the coordinator answers soon. A node that stops while it waits leaves the key to the lease, because
    /// most are started again at once.
    /// </summary>
    /// <param name="coordinator">The coordinator.</param>
    public async Task WithdrawAsync(ICoordinator coordinator)
    {
        await coordinator.RevokeSoonAsync(_lease).ConfigureAwait(false);
        _lease = 0;
    }
}
