namespace KvCluster.Storage.Threads;

/// <summary>
/// Runs work items one at a time, in the order posted. Either a <see cref="WorkThread"/>, or a queue that the simulator drains. Items on one executor need
/// no lock among each other.
/// </summary>
internal interface ISerialExecutor
{
    /// <summary>Whether nothing seems to be queued or running. A hint for choosing between executors. Any thread.</summary>
    bool IsIdle { get; }

    /// <summary>Whether items seem to be queued behind the one that runs. A hint for what may wait for them; by default it may. Any thread.</summary>
    bool HasWork => true;

    /// <summary>Queues an item. Never blocks, and never runs it before returning. Any thread.</summary>
    void Post(IWorkItem item);

    /// <summary>
    /// The same for one of many items, after the last of which <see cref="WakeUp"/> must follow at once. An idle executor would otherwise begin with the first
    /// item alone, on the processor of whoever posts. It may begin before, as others may post. Any thread.
    /// </summary>
    void PostQuietly(IWorkItem item) => Post(item);

    /// <summary>Has what was posted quietly run. Any thread.</summary>
    void WakeUp()
    {
    }
}

/// <summary>Work for an <see cref="ISerialExecutor"/>. An item may be posted again while it is queued or runs; it then runs again.</summary>
internal interface IWorkItem
{
    /// <summary>Runs the item. Must not throw: the item's owner keeps failures, and an escaped exception ends the process.</summary>
    void Execute();
}

/// <summary>A method as a work item, created once and posted often.</summary>
internal sealed class WorkAction(Action action) : IWorkItem
{
    /// <inheritdoc/>
    public void Execute() => action();

    /// <summary>The name of the method, for diagnostics.</summary>
    public override string ToString() => NameOf(action);

    /// <summary>The name of a method, for diagnostics.</summary>
    public static string NameOf(Action action) => $"{action.Method.DeclaringType?.Name}.{action.Method.Name}";
}
