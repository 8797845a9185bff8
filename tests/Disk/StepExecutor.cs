using KvCluster.Storage.Threads;

namespace KvCluster.Disk;

/// <summary>A serial executor that a test drains on its own thread.</summary>
internal sealed class StepExecutor : ISerialExecutor
{
    private readonly Queue<IWorkItem> _items = new();

    /// <summary>The number of waiting items.</summary>
    public int Count => _items.Count;

    /// <inheritdoc/>
    public bool IsIdle => _items.Count == 0 && !IsRunning;

    /// <inheritdoc/>
    public bool IsBehind { get; set; }

    /// <inheritdoc/>
    public void Post(IWorkItem item) => _items.Enqueue(item);

    /// <summary>Whether an item is running. No other item may run then.</summary>
    public bool IsRunning { get; private set; }

    /// <summary>Runs the next item. False if none waits, or if called from within an item.</summary>
    public bool RunOne()
    {
        if (IsRunning || !_items.TryDequeue(out var item))
            return false;
        IsRunning = true;
        try
        {
            item.Execute();
        }
        finally
        {
            IsRunning = false;
        }
        return true;
    }

    /// <summary>Drops the waiting items, as the death of a process does.</summary>
    public void Clear() => _items.Clear();
}
