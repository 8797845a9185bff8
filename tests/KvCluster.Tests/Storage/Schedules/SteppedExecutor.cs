using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>A serial executor whose items are run by an actor, or outside a run by the test.</summary>
internal sealed class SteppedExecutor : ISerialExecutor
{
    private readonly Queue<IWorkItem> _items = new();
    private bool _isRunning;

    /// <inheritdoc/>
    public bool IsIdle => _items.Count == 0 && !_isRunning;

    /// <inheritdoc/>
    public bool IsBehind => false;

    /// <inheritdoc/>
    public void Post(IWorkItem item)
    {
        Schedule.Operation();
        _items.Enqueue(item);
    }

    /// <summary>Runs the next item; false if none waits.</summary>
    public bool RunOne()
    {
        if (!_items.TryDequeue(out var item))
            return false;
        _isRunning = true;
        item.Execute();
        _isRunning = false;
        return true;
    }

    /// <summary>What its actor does: it runs items until nobody posts any more.</summary>
    public void RunUntil(Func<bool> isOver)
    {
        for (Wait(); RunOne(); Wait())
            Schedule.Operation();

        void Wait() => Schedule.Until(() => _items.Count > 0 || isOver());
    }
}
