using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Reads the data file in the background, so that a page that went bad is found before somebody needs it. In steps on the checkpoint executor, with a rest
/// behind each; begun and ended on the writer executor. A bad page ends the engine, as it does when a reader meets it.
/// </summary>
internal sealed class Scrub : IDisposable
{
    private const long StepBytes = 1 << 20;

    private readonly StoreContext _context;
    private readonly ScrubWalk _walk;
    private readonly Action<Exception> _fail;
    private readonly WorkAction _step;
    private readonly ITimer _rest;
    private volatile bool _hasEnded;

    /// <summary>Passes to come that do not rest: the one under way, and a whole one.</summary>
    private int _urgentPasses;
    private long _pagesChecked;
    private long _passes;

    /// <summary>Waits until <see cref="Start"/>.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="pages">What is read.</param>
    /// <param name="fail">Told on the writer executor what ended it.</param>
    public Scrub(StoreContext context, PageStore pages, Action<Exception> fail)
    {
        _context = context;
        _walk = new ScrubWalk(pages);
        _fail = fail;
        _step = new WorkAction(Step);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_step), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Pages compared since the store was opened. Any thread.</summary>
    public long PagesChecked => Interlocked.Read(ref _pagesChecked);

    /// <summary>How often the whole file was gone through since the store was opened. Any thread.</summary>
    public long Passes => Interlocked.Read(ref _passes);

    /// <summary>The first pass begins after the interval.</summary>
    /// <param name="atOnce">At once instead: a page may have ended the process before.</param>
    public void Start(bool atOnce) => RestFor(atOnce ? TimeSpan.Zero : _context.Options.ScrubInterval);

    /// <summary>
    /// Somebody has reason to doubt the file: goes through all of it at the pace of digests, once for any number of calls until it is through. Writer executor.
    /// </summary>
    public void Hurry()
    {
        // What is left of the pass under way says nothing of the pages before.
        if (Interlocked.CompareExchange(ref _urgentPasses, 2, 0) == 0)
            RestFor(TimeSpan.Zero);
    }

    /// <summary>No step begins any more.</summary>
    public void Dispose()
    {
        _hasEnded = true;
        _rest.Dispose();
    }

    private void Step()
    {
        // The end of the store passes through this executor behind it: what was let go of is not read.
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
            // Readers go first.
            RestFor(_context.Options.ScrubInterval);
        }
        catch (Exception failure)
        {
            _context.Writer.Post(new WorkAction(() => _fail(failure)));
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
