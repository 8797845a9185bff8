using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// Transfers and changes of replicas that callers order, and their outcomes. Callers order and wait on any thread; the other members are called on the shard's
/// writer executor.
/// </summary>
/// <param name="mailbox">Takes the orders to the core.</param>
/// <param name="life">Why orders are refused.</param>
/// <param name="metrics">The node's metrics.</param>
internal sealed class ReplicaOrders(ReplicaMailbox mailbox, ReplicaLife life, NodeMetrics metrics)
{
    private readonly Dictionary<long, TaskCompletionSource<OrderResult>> _waiting = [];
    private long _idLast;

    /// <summary>
    /// Transfers this replica's leadership to another one. Writers see a pause of some milliseconds, and their client repeats what was refused.
    /// </summary>
    /// <param name="replica">The replica that should lead; 0: the most advanced voter.</param>
    public async Task<OrderResult> TransferAsync(ReplicaId replica)
    {
        var result = await OrderAsync(id => new Event.TransferAsked(id, replica)).ConfigureAwait(false);
        metrics.TransferEnded(result.Done);
        return result;
    }

    /// <summary>Changes the shard's replicas, as its leader. Ends when the outcome is definite, or this replica stops leading.</summary>
    public Task<OrderResult> ChangeReplicasAsync(ReplicaChange change) => OrderAsync(id => new Event.ReplicasAsked(id, change));

    /// <summary>An order has ended.</summary>
    public void End(long id, OrderResult result)
    {
        if (_waiting.Remove(id, out var ended))
            ended.TrySetResult(result);
    }

    /// <summary>The replica has ended.</summary>
    public void RefuseAll()
    {
        foreach (var ended in _waiting.Values)
            ended.TrySetResult(new OrderResult(false, "the replica stopped; the change in progress may still have been made"));
        _waiting.Clear();
    }

    private async Task<OrderResult> OrderAsync(Func<long, Event> order)
    {
        var ended = new TaskCompletionSource<OrderResult>(TaskCreationOptions.RunContinuationsAsynchronously);
        var visited = await mailbox.VisitAsync(() =>
        {
            _waiting.Add(++_idLast, ended);
            mailbox.Add(order(_idLast));
        }).ConfigureAwait(false);
        return visited ? await ended.Task.ConfigureAwait(false) : new OrderResult(false, life.Failure?.Message ?? "the replica is stopping");
    }
}
