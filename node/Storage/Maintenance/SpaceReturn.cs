using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Gives back what the data file does not need after a checkpoint, in parts of at most 16 MiB with a pause after each: the file system holds the file while it
/// frees space, and the writer and readers would wait. Owned by <see cref="CheckpointSchedule"/>. Parts are chosen on the writer executor and given back on the
/// checkpoint executor, before the next checkpoint is written there. A failure stops the engine.
/// </summary>
internal sealed class SpaceReturn : IDisposable
{
    /// <summary>Long enough for what waited. A terabyte takes ten minutes.</summary>
    private static readonly TimeSpan Rest = TimeSpan.FromMilliseconds(10);

    /// <summary>After so many bytes there is a pause. Single pages, of which there may be many, take up to 0.4 ms each.</summary>
    private const long BytesBetweenRests = 1 << 20;

    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly PageStore _pages;
    private readonly Func<bool> _isCheckpointing;
    private readonly IWorkItem _choose;
    private readonly WorkAction _give;
    private readonly ITimer _rest;
    private FilePart _part;
    private long _bytesSinceRest;
    private Exception? _failure;
    private bool _isBusy;
    private int _holePagesMin;
    private Func<bool>? _isWanted;
    private volatile bool _hasEnded;

    /// <summary>Does nothing before <see cref="Start"/>.</summary>
    /// <param name="context">The shard's executors and clock.</param>
    /// <param name="life">Ended by a failure.</param>
    /// <param name="pages">The trees.</param>
    /// <param name="isCheckpointing">Whether a checkpoint is in progress, during which the free map does not belong to the writer.</param>
    public SpaceReturn(StoreContext context, StoreLifecycle life, PageStore pages, Func<bool> isCheckpointing)
    {
        (_context, _life, _pages, _isCheckpointing) = (context, life, pages, isCheckpointing);
        _choose = life.Guarded(Choose);
        _give = new WorkAction(Give);
        _rest = context.Time.CreateTimer(_ => context.Writer.Post(_choose), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>
    /// Called when a checkpoint has ended or the store is quiescent. Goes on until nothing is left or the next checkpoint begins. Writer executor.
    /// </summary>
    /// <param name="holePagesMin">The shortest run of free pages that becomes a hole.</param>
    /// <param name="isWanted">Asked before each part; null: as long as there are any.</param>
    public void Start(int holePagesMin, Func<bool>? isWanted = null)
    {
        (_holePagesMin, _isWanted) = (holePagesMin, isWanted);
        if (_isBusy)
            return;
        _isBusy = true;
        Choose();
    }

    /// <summary>Stops it for good.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
    }

    private void Choose()
    {
        if (_hasEnded)
            return;
        if (_failure is not null)
            _life.Fail(_failure);
        else if (_isCheckpointing() || _isWanted?.Invoke() == false || !_pages.TryChooseSurplus(out _part, _holePagesMin))
            _isBusy = false;
        else if (_part.Bytes == 0)
            _context.Writer.Post(_choose);
        else
            _context.Checkpoints.Post(_give);
    }

    private void Give()
    {
        if (_hasEnded)
            return;
        try
        {
            _pages.FileSpace.GiveBack(_part);
        }
        catch (Exception exception)
        {
            _failure = exception;
        }
        _bytesSinceRest += _part.Bytes;
        if (_failure is not null || _bytesSinceRest < BytesBetweenRests)
        {
            _context.Writer.Post(_choose);
            return;
        }
        _bytesSinceRest = 0;
        if (!_hasEnded)
            _rest.Change(Rest, Timeout.InfiniteTimeSpan);
    }
}
