// Returns memory to the system after a burst of large calls. The garbage collector returns unused memory when it collects, but an idle process does not
// collect, so it would keep gigabytes for as long as it has little to do. One timer per process; IdleMemory.cs decides what to do when.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Checks at intervals whether the process is idle and has much committed, unused memory, and then makes the garbage collector return it.</summary>
internal sealed class MemoryReturn : IAsyncDisposable
{
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(2);

    private readonly IdleMemory _rule = new();
    private readonly Timer _timer;
    private int _isLooking;

    public MemoryReturn() => _timer = new Timer(static state => ((MemoryReturn)state!).Look(), this, Interval, Interval);

    public ValueTask DisposeAsync() => _timer.DisposeAsync();

    private void Look()
    {
        // On a busy pool two ticks may run at the same time.
        if (Interlocked.Exchange(ref _isLooking, 1) != 0)
            return;
        switch (_rule.Look(Read()))
        {
            case IdleMemoryStep.TrimNative:
                NativeHeap.Trim();
                break;
            case IdleMemoryStep.Measure:
                NativeHeap.Trim();
                // This collection marks in the background, however much memory is in use.
                GC.Collect(GC.MaxGeneration, GCCollectionMode.Forced, blocking: false, compacting: false);
                break;
            case IdleMemoryStep.Compact:
                GC.Collect(GC.MaxGeneration, GCCollectionMode.Forced, blocking: true, compacting: true);
                break;
            case IdleMemoryStep.Trim:
                // Any collection returns 160 KiB of free memory for each millisecond since the previous one. At this interval that is 320 MiB and takes about
                // 30 ms.
                GC.Collect(0, GCCollectionMode.Forced, blocking: true);
                break;
            case IdleMemoryStep.Return:
                GC.Collect(GC.MaxGeneration, GCCollectionMode.Aggressive, blocking: true, compacting: true);
                break;
        }
        Volatile.Write(ref _isLooking, 0);
    }

    private static IdleMemoryReading Read()
    {
        var blocking = GC.GetGCMemoryInfo(GCKind.FullBlocking);
        var background = GC.GetGCMemoryInfo(GCKind.Background);
        var full = blocking.Index > background.Index ? blocking : background;
        return new IdleMemoryReading(
            Environment.TickCount64,
            GC.GetTotalAllocatedBytes(),
            GC.GetGCMemoryInfo(GCKind.Any).TotalCommittedBytes,
            full.Index,
            full.HeapSizeBytes - full.FragmentedBytes);
    }
}
