namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <summary>In place of the framework's type of that name in the engine under a <see cref="Schedule"/>: each is an actor.</summary>
internal sealed class Thread(ThreadStart start)
{
    private bool _hasEnded;

    public string? Name { get; set; }

    public bool IsBackground { get; set; }

    public static bool Yield()
    {
        Schedule.Yield();
        return true;
    }

    public void Start() => Schedule.Start(Name ?? "thread", () =>
    {
        start();
        _hasEnded = true;
    });

    public void Join() => Schedule.Until(() => _hasEnded);
}

/// <summary>Spinning is nothing but waiting for others, which the next look decides.</summary>
internal struct SpinWait
{
    public readonly bool NextSpinWillYield => true;

    public readonly void Reset()
    {
    }

    public readonly void SpinOnce() => Schedule.Yield();

    public readonly void SpinOnce(int sleep1Threshold) => Schedule.Yield();
}

/// <summary>Each item is an actor.</summary>
internal static class ThreadPool
{
    public static bool UnsafeQueueUserWorkItem(IThreadPoolWorkItem item, bool preferLocal)
    {
        Schedule.Start(preferLocal ? "pool, local" : "pool", item.Execute);
        return true;
    }
}

/// <summary>A thread's number decides which slot of a reader it tries first. All try the same one.</summary>
internal static class Environment
{
    public static int CurrentManagedThreadId => 1;
}
