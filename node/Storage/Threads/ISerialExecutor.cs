namespace KvCluster.Storage.Threads;

/// <summary>
/// Runs work items one at a time, in the order posted: a <see cref="WorkThread"/>, or a queue that the simulator drains. What runs
/// on one executor needs no lock among itself.
/// </summary>
internal interface ISerialExecutor
{
    /// <summary>Nothing is queued or runs, as far as can be seen: for a choice between executors. Any thread.</summary>
    bool IsIdle { get; }

    /// <summary>Queues an item; never blocks, never runs it before returning. Any thread.</summary>
    void Post(IWorkItem item);
}
