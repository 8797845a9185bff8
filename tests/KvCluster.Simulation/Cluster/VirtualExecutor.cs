using KvCluster.Storage.Threads;

namespace KvCluster.Simulation.Cluster;

/// <summary>A serial executor. Its items run one at a time, each a random while after it was posted, and none after its process has died.</summary>
internal sealed class VirtualExecutor(VirtualTime time, Random random, Func<long> delayMaxUs, Action<Action> run) : ISerialExecutor
{
    private readonly Queue<IWorkItem> _items = new();
    private bool _scheduled;
    private bool _dead;

    /// <summary>Whether an item is running.</summary>
    public bool IsRunning { get; private set; }

    public bool IsIdle => _items.Count == 0 && !IsRunning;

    public bool IsBehind => _items.Count >= WorkThread.BehindItems;

    public void Post(IWorkItem item)
    {
        if (_dead)
            return;
        _items.Enqueue(item);
        Schedule();
    }

    public void Kill()
    {
        _dead = true;
        _items.Clear();
    }

    /// <summary>Runs the next item now, while an item of another executor is in progress. False if none waits or one is running.</summary>
    public bool RunOneBeside()
    {
        if (IsRunning || !_items.TryDequeue(out var item))
            return false;
        Execute(item);
        return true;
    }

    private void Execute(IWorkItem item)
    {
        IsRunning = true;
        item.Execute();
        IsRunning = false;
    }

    private void Schedule()
    {
        if (_scheduled || _items.Count == 0)
            return;
        _scheduled = true;
        time.After(1 + random.NextInt64(delayMaxUs()), () =>
        {
            _scheduled = false;
            if (_items.TryDequeue(out var item))
                run(() => Execute(item));
            Schedule();
        });
    }
}
