// Gives memory back to the system after a burst of large calls. The collector gives back what it no longer needs as it collects, and a process that has
// become idle does not collect: it would keep gigabytes for as long as nobody asks for much. One timer a process; when to do what is in IdleMemory.cs.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Looks now and then whether much memory is committed and unused while little is going on, and then has it collected.</summary>
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
        // A busy pool may have two ticks run side by side.
        if (Interlocked.Exchange(ref _isLooking, 1) != 0)
            return;
        switch (_rule.Look(Read()))
        {
            case IdleMemoryStep.Measure:
                // It marks in the background, however much there is.
                GC.Collect(GC.MaxGeneration, GCCollectionMode.Forced, blocking: false, compacting: false);
                break;
            case IdleMemoryStep.Compact:
                GC.Collect(GC.MaxGeneration, GCCollectionMode.Forced, blocking: true, compacting: true);
                break;
            case IdleMemoryStep.Trim:
                // Of what is free any collection gives back 160 KiB for each millisecond since the one before; at our interval that is 320 MiB and takes some 30 ms.
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
