using System.Collections.Concurrent;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Threads;

/// <summary>
/// A dedicated, named thread that runs posted items in order. It spins briefly for the next item, then yields the processor as long as that has paid off
/// recently, and then parks. The queue is bounded by its callers, each of which keeps at most a fixed number of items posted.
/// </summary>
/// <remarks>
/// Yielding before every sleep took a quarter of an idle node's CPU time. Never yielding reduced durable puts of one caller from 75 to 45 % of the
/// device's rate. So yielding is tried, and given up for a while when it was in vain. It also ends when another thread took the processor: on busy
/// processors the threads of three nodes would otherwise hand them to each other, and a sleeper is woken as soon as its turn would come.
/// </remarks>
internal sealed class WorkThread : ISerialExecutor, IDisposable
{
    /// <summary>Together about as long as one synced write to a fast device.</summary>
    private const int YieldsMax = 130;

    /// <summary>Consecutive waits that yielding did not end, after which it is no longer tried every time. More than a busy thread ever has.</summary>
    private const int FruitlessMax = 64;

    /// <summary>After that, one of this many waits tries it again, in case the load has changed.</summary>
    private const int TryEvery = 16;

    /// <summary>
    /// For checkpoints, digests and scrubs: a tenth of the time of a thread that somebody waits for, if both want the same processor. Three nodes on two
    /// processors with 20,000 reads and writes a second answered 99 % of them within 14 to 58 ms without it, and 13 to 23 ms with it, four runs each.
    /// </summary>
    public const int BackgroundNice = 10;

    /// <summary>
    /// So many items wait for a thread that is behind. One shard alone seldom has as many: a turn, a notice of requests, and one of what the disk has written.
    /// </summary>
    public const int BehindItems = 4;

    /// <summary>A yield takes half a microsecond, unless another thread runs in between.</summary>
    private const int TakenMicroseconds = 5;

    private readonly ConcurrentQueue<IWorkItem> _items = new();
    private readonly object _wake = new();
    private readonly Thread _thread;
    private readonly TimeProvider _time;
    private readonly int _nice;
    private readonly long _takenTicks;
    private bool _isWoken;
    private int _parked;
    private int _fruitless;
    private volatile IWorkItem? _item;
    private long _turn;
    private volatile bool _stopping;

    /// <summary>Starts the thread.</summary>
    /// <param name="name">Its name.</param>
    /// <param name="time">Tells whether another thread wanted the processor.</param>
    /// <param name="nice">How far the thread stands back where the processors are busy, as Linux counts it.</param>
    public WorkThread(string name, TimeProvider time, int nice = 0)
    {
        (_time, _nice, _takenTicks) = (time, nice, time.TimestampFrequency * TakenMicroseconds / 1_000_000);
        _thread = new Thread(Run) { Name = name, IsBackground = true };
        _thread.Start();
    }

    /// <inheritdoc/>
    public bool IsIdle => (Volatile.Read(ref _turn) & 1) == 0 && _items.IsEmpty;

    /// <inheritdoc/>
    public bool IsBehind => _items.Count >= BehindItems;

    /// <summary>The name of the thread.</summary>
    public string Name => _thread.Name!;

    /// <summary>Whether items are queued. Any thread.</summary>
    public bool HasWork => !_items.IsEmpty;

    /// <summary>
    /// A number that increases when an item begins and when it ends, and is odd while one runs, together with an item that ran at about that time. Two
    /// reads of it show whether the thread has made progress. Any thread.
    /// </summary>
    public (long Number, IWorkItem? Item) Turn => (Volatile.Read(ref _turn), _item);

    /// <inheritdoc/>
    public void Post(IWorkItem item)
    {
        _items.Enqueue(item);
        // The enqueue must be visible before the flag is read, because the thread sets the flag before it checks the queue again.
        Interlocked.MemoryBarrier();
        if (Volatile.Read(ref _parked) == 1 && Interlocked.Exchange(ref _parked, 0) == 1)
            Wake();
    }

    /// <summary>Runs what is queued, then ends the thread and waits for it. Must not be called from the thread itself.</summary>
    public void Dispose()
    {
        _stopping = true;
        Post(Nothing.Instance);
        _thread.Join();
    }

    private void Run()
    {
        // Elsewhere .NET's own priorities would do, which Linux ignores. A refusal costs nothing but time of others.
        if (_nice > 0 && OperatingSystem.IsLinux())
            _ = LibC.SetPriority(LibC.PriorityOfThread, 0, _nice);
        var spinner = new SpinWait();
        while (true)
        {
            if (_items.TryDequeue(out var item))
            {
                _item = item;
                Volatile.Write(ref _turn, _turn + 1);
                item.Execute();
                Volatile.Write(ref _turn, _turn + 1);
                _item = null;
                spinner.Reset();
            }
            else if (_stopping)
            {
                return;
            }
            else if (!spinner.NextSpinWillYield)
            {
                spinner.SpinOnce(sleep1Threshold: -1);
            }
            else
            {
                if (!IsWorthYielding() || !TryYield())
                    Park();
                spinner.Reset();
            }
        }
    }

    private bool IsWorthYielding() => _fruitless is < FruitlessMax or FruitlessMax + TryEvery;

    // Yields the processor a few times. True if an item was posted meanwhile.
    private bool TryYield()
    {
        var before = _time.GetTimestamp();
        for (var yields = 0; yields < YieldsMax; yields++)
        {
            Thread.Yield();
            var now = _time.GetTimestamp();
            var isTaken = now - before > _takenTicks;
            if (!_items.IsEmpty)
            {
                if (!isTaken)
                    _fruitless = 0;
                return true;
            }
            if (isTaken)
                return false;
            before = now;
        }
        return false;
    }

    private void Park()
    {
        _fruitless = _fruitless < FruitlessMax + TryEvery ? _fruitless + 1 : FruitlessMax + 1;
        Volatile.Write(ref _parked, 1);
        Interlocked.MemoryBarrier();
        if (_items.IsEmpty || Interlocked.Exchange(ref _parked, 0) == 0)
            Sleep();
    }

    private void Sleep()
    {
        lock (_wake)
        {
            while (!_isWoken)
                Monitor.Wait(_wake);
            _isWoken = false;
        }
    }

    private void Wake()
    {
        lock (_wake)
        {
            _isWoken = true;
            Monitor.Pulse(_wake);
        }
    }

    /// <summary>Wakes a parked thread so that it notices the stop.</summary>
    private sealed class Nothing : IWorkItem
    {
        public static readonly Nothing Instance = new();

        public void Execute()
        {
        }
    }
}
