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

/// <summary>Work for an <see cref="ISerialExecutor"/>. An item may be posted again while it is queued or runs; it then runs again.</summary>
internal interface IWorkItem
{
    /// <summary>Does it. Must not throw: what fails is kept by the item's owner, and an escaped exception ends the process.</summary>
    void Execute();
}

/// <summary>A method as a work item, made once and posted often.</summary>
internal sealed class WorkAction(Action action) : IWorkItem
{
    /// <inheritdoc/>
    public void Execute() => action();

    /// <summary>Whose method it is, for people.</summary>
    public override string ToString() => $"{action.Method.DeclaringType?.Name}.{action.Method.Name}";
}
