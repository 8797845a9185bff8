// Gives memory back to the system after a burst of large calls. The collector gives back what it no longer needs as it collects, and a process that has
// become idle does not collect: it would keep hundreds of megabytes for as long as nobody asks for much. One timer a process.
namespace KvCluster.Serving.Memory;

/// <summary>Looks now and then whether much memory is committed and unused while little is going on, and then has it collected.</summary>
internal sealed class MemoryReturn : IAsyncDisposable
{
    /// <summary>Committed in all at which it is worth a collection.</summary>
    private const long UnusedBytesLeast = 64L << 20;

    /// <summary>Allocated between two looks: less is a process that does little.</summary>
    private const long IdleBytesMost = 8L << 20;

    /// <summary>A heap with so much in use would be stopped for long by a whole compacting collection; it is left alone.</summary>
    private const long LiveBytesMost = 256L << 20;

    /// <summary>A collection of ours that gave back less was in vain.</summary>
    private const long GainBytesLeast = 8L << 20;

    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(2);

    /// <summary>Between two collections: buffers that servers keep for their connections are let go some seconds after those.</summary>
    private static readonly TimeSpan Pause = TimeSpan.FromSeconds(15);

    private readonly Timer _timer;
    private long _allocatedBytes;
    private long _nextMs;
    private int _inVain;
    private int _collectionsSeen = -1;

    public MemoryReturn() => _timer = new Timer(static state => ((MemoryReturn)state!).Look(), this, Interval, Interval);

    public ValueTask DisposeAsync() => _timer.DisposeAsync();

    private void Look()
    {
        var allocated = GC.GetTotalAllocatedBytes();
        var isIdle = allocated - _allocatedBytes < IdleBytesMost;
        _allocatedBytes = allocated;
        var collections = GC.CollectionCount(0);
        if (collections != _collectionsSeen)
            _inVain = 0;
        // After three that gave nothing back there is nothing, until something else had the process collect.
        if (!isIdle || _inVain == 3 || Environment.TickCount64 < _nextMs)
            return;
        var live = LiveBytes();
        var committed = CommittedBytes();
        if (live > LiveBytesMost || committed < UnusedBytesLeast)
            return;
        // A few tens of milliseconds: little is in use.
        GC.Collect(GC.MaxGeneration, GCCollectionMode.Aggressive, blocking: true, compacting: true);
        _inVain = committed - CommittedBytes() < GainBytesLeast ? _inVain + 1 : 0;
        _collectionsSeen = GC.CollectionCount(0);
        _nextMs = Environment.TickCount64 + (long)Pause.TotalMilliseconds;
    }

    private static long CommittedBytes() => GC.GetGCMemoryInfo(GCKind.Any).TotalCommittedBytes;

    // After the last collection of everything; 0: there was none.
    private static long LiveBytes()
    {
        var blocking = GC.GetGCMemoryInfo(GCKind.FullBlocking);
        var background = GC.GetGCMemoryInfo(GCKind.Background);
        var last = blocking.Index > background.Index ? blocking : background;
        return last.HeapSizeBytes - last.FragmentedBytes;
    }
}
