using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Reads the data file in the background, so that a damaged page is found before it is needed. Works in steps on the checkpoint executor, with a pause
/// after each. Started and disposed on the writer executor. A damaged page stops the engine, as it does when a reader finds it.
/// </summary>
internal sealed class Scrub : IDisposable
{
    private const long StepBytes = 1 << 20;

    private readonly StoreContext _context;
    private readonly ScrubWalk _walk;
    private readonly StoreLifecycle _life;
    private readonly WorkAction _step;
    private readonly ITimer _rest;
    private volatile bool _hasEnded;

    /// <summary>Remaining passes without long pauses: the current one and a complete one.</summary>
    private int _urgentPasses;
    private long _pagesChecked;
    private long _passes;

    /// <summary>Creates the scrub, which waits for <see cref="Start"/>.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="pages">The store to read.</param>
    /// <param name="life">Ended by a damaged page.</param>
    public Scrub(StoreContext context, PageStore pages, StoreLifecycle life)
    {
        _context = context;
        _walk = new ScrubWalk(pages);
        _life = life;
        _step = new WorkAction(Step);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_step), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Pages verified since the store was opened. Any thread.</summary>
    public long PagesChecked => Interlocked.Read(ref _pagesChecked);

    /// <summary>How many times the whole file was read since the store was opened. Any thread.</summary>
    public long Passes => Interlocked.Read(ref _passes);

    /// <summary>Starts the first pass after the interval.</summary>
    /// <param name="atOnce">Start it immediately, because a damaged page may have crashed the previous process.</param>
    public void Start(bool atOnce) => RestFor(atOnce ? TimeSpan.Zero : _context.Options.ScrubInterval);

    /// <summary>
    /// Called when the file is suspected to be damaged. Reads all of it at the pace of digests; further calls until then have no effect. Writer executor.
    /// </summary>
    public void Hurry()
    {
        // The rest of the current pass does not cover the pages before it.
        if (!_life.HasEnded && Interlocked.CompareExchange(ref _urgentPasses, 2, 0) == 0)
            RestFor(TimeSpan.Zero);
    }

    /// <summary>Stops the scrub: no further step begins.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
    }

    private void Step()
    {
        // The end of the store passes through this executor after this flag is set, so nothing released is read.
        if (_hasEnded)
            return;
        try
        {
            var began = _context.Time.GetTimestamp();
            var before = _walk.PagesChecked;
            var isWhole = _walk.Step(StepBytes);
            var bytes = (_walk.PagesChecked - before) * Page.Bytes;
            Interlocked.Exchange(ref _pagesChecked, _walk.PagesChecked);
            if (isWhole)
                EndPass();
            var shared = _context.DigestPace.RestAfter(_context.Time, began, bytes);
            var own = TimeSpan.FromSeconds((double)bytes / _context.Options.ScrubBytesPerSecond);
            RestFor(Volatile.Read(ref _urgentPasses) > 0 ? shared : isWhole ? _context.Options.ScrubInterval : shared > own ? shared : own);
        }
        catch (SnapshotLimitException)
        {
            // Readers take precedence.
            RestFor(_context.Options.ScrubInterval);
        }
        catch (Exception failure)
        {
            _context.Writer.Post(new WorkAction(() => _life.Fail(failure)));
        }
    }

    private void EndPass()
    {
        Interlocked.Increment(ref _passes);
        if (Volatile.Read(ref _urgentPasses) > 0)
            Interlocked.Decrement(ref _urgentPasses);
    }

    private void RestFor(TimeSpan time)
    {
        if (!_hasEnded)
            _rest.Change(time, Timeout.InfiniteTimeSpan);
    }
}
