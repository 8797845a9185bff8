using KvCluster.Storage.Threads;

namespace KvCluster.Disk;

/// <summary>A serial executor that a test drains on its own thread.</summary>
internal sealed class StepExecutor : ISerialExecutor
{
    private readonly Queue<IWorkItem> _items = new();

    /// <summary>Items that wait.</summary>
    public int Count => _items.Count;

    /// <inheritdoc/>
    public bool IsIdle => _items.Count == 0 && !IsRunning;

    /// <inheritdoc/>
    public void Post(IWorkItem item) => _items.Enqueue(item);

    /// <summary>An item runs: no other one may.</summary>
    public bool IsRunning { get; private set; }

    /// <summary>Runs the next item; false when none waits, or this is called from within one.</summary>
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

    /// <summary>Forgets what waits, as a process that dies does.</summary>
    public void Clear() => _items.Clear();
}
