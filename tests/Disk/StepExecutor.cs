using KvCluster.Storage.Threads;

namespace KvCluster.Disk;

/// <summary>A serial executor that a test drains on its own thread.</summary>
internal sealed class StepExecutor : ISerialExecutor
{
    private readonly Queue<IWorkItem> _items = new();

    /// <summary>Items that wait.</summary>
    public int Count => _items.Count;

    /// <inheritdoc/>
    public void Post(IWorkItem item) => _items.Enqueue(item);

    /// <summary>Runs the next item; false when none waits.</summary>
    public bool RunOne()
    {
        if (!_items.TryDequeue(out var item))
            return false;
        item.Execute();
        return true;
    }

    /// <summary>Forgets what waits, as a process that dies does.</summary>
    public void Clear() => _items.Clear();
}
