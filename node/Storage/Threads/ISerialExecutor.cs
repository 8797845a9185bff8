namespace KvCluster.Storage.Threads;

/// <summary>
/// Runs work items one at a time, in the order posted. Either a <see cref="WorkThread"/>, or a queue that the simulator drains. Items on one executor need
/// no lock among each other.
/// </summary>
internal interface ISerialExecutor
{
    /// <summary>Whether nothing seems to be queued or running. A hint for choosing between executors. Any thread.</summary>
    bool IsIdle { get; }

    /// <summary>
    /// Whether so many items wait that those of several shards must be among them. A hint for doing more at once. Called within an item.
    /// </summary>
    bool IsBehind { get; }

    /// <summary>Queues an item. Never blocks, and never runs it before returning. Any thread.</summary>
    void Post(IWorkItem item);
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
