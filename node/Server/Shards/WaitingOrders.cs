namespace KvCluster.Node.Shards;

/// <summary>Callers that wait for the end of a transfer or of a change of replicas. Called on the shard's writer executor; callers wait on any thread.</summary>
internal sealed class WaitingOrders
{
    private readonly Dictionary<long, TaskCompletionSource<OrderResult>> _waiting = [];
    private long _idLast;

    /// <summary>Registers a caller whose order is about to be given to the core. Returns the order's id.</summary>
    public long Add(TaskCompletionSource<OrderResult> ended)
    {
        _waiting.Add(++_idLast, ended);
        return _idLast;
    }

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
}
