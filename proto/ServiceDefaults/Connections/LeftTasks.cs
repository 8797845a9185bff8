namespace KvCluster.ServiceDefaults.Connections;

/// <summary>
/// Tasks that nobody waits for any more, although they have not ended. They are counted and not kept: those that never end are collected as garbage. Any
/// thread.
/// </summary>
internal sealed class LeftTasks
{
    /// <summary>Beyond this number the oldest are not counted any more.</summary>
    private const int CountedMax = 10_000;

    private readonly Lock _gate = new();
    private readonly Queue<WeakReference<Task>> _tasks = new();

    /// <summary>The number of those that have neither ended nor been collected.</summary>
    public int Count
    {
        get
        {
            lock (_gate)
            {
                for (var left = _tasks.Count; left > 0; left--)
                {
                    var task = _tasks.Dequeue();
                    if (IsLeft(task))
                        _tasks.Enqueue(task);
                }
                return _tasks.Count;
            }
        }
    }

    /// <summary>Adds a task, whose failure is ignored.</summary>
    public void Add(Task task)
    {
        // Without this the runtime would report the failure as one that nobody has looked at.
        task.ContinueWith(static failed => failed.Exception, CancellationToken.None, TaskContinuationOptions.OnlyOnFaulted, TaskScheduler.Default);
        lock (_gate)
        {
            while (_tasks.Count >= CountedMax || (_tasks.TryPeek(out var oldest) && !IsLeft(oldest)))
                _tasks.Dequeue();
            _tasks.Enqueue(new WeakReference<Task>(task));
        }
    }

    private static bool IsLeft(WeakReference<Task> task) => task.TryGetTarget(out var left) && !left.IsCompleted;
}
