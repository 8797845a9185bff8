using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// One store's side of the node's memory: tells the account at the end of each step what the store uses, drops what is only cached when memory is short,
/// starts a checkpoint when the account asks, and says how fast the store may take more. A store also has a bound of its own, so that one busy store does not
/// take the whole budget before its checkpoints keep up. Owned by a store; writer executor.
/// </summary>
internal sealed class StoreMemory : IDisposable
{
    /// <summary>Multiples of the changed pages that start a checkpoint: from the first on a store is slowed, at the second it gets the least.</summary>
    private const int SlowFromTimes = 2;
    private const int MaxTimes = 4;

    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly Func<long> _requestBytes;
    private readonly MemoryAccount.Share _share;
    private readonly GrowthPace _pace;
    private readonly HoldBack _holdBack;
    private bool _hasEnded;

    /// <summary>Joins the node's account.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">A failure ends the store.</param>
    /// <param name="pages">Provides the changed pages.</param>
    /// <param name="index">Provides the bodies of the journal.</param>
    /// <param name="checkpoints">Written when the account asks.</param>
    /// <param name="requestBytes">Bytes of the requests that wait.</param>
    /// <param name="resume">Called when a pause is over, and steps may follow.</param>
    public StoreMemory(StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, CheckpointSchedule checkpoints, Func<long> requestBytes, Action resume)
    {
        (_context, _pages, _index, _requestBytes) = (context, pages, index, requestBytes);
        var bytes = context.ChangedBytesForCheckpoint;
        _pace = new GrowthPace(SlowFromTimes * bytes, MaxTimes * bytes, TimeSpan.FromMilliseconds(100), context.Time);
        var relieve = new WorkAction(() => life.Guard(() =>
        {
            Observe();
            checkpoints.StartForMemory();
        }));
        _holdBack = new HoldBack(context, resume);
        _share = context.Memory.Join(() => context.Writer.Post(relieve));
        checkpoints.Released = Observe;
        checkpoints.Ended = () =>
        {
            Observe();
            _share.Relieved();
        };
    }

    /// <summary>The pages that the next step may make.</summary>
    public int PagesMax() => Math.Min(_share.PagesMax(), _pace.PagesMax(Own, writers: 1));

    /// <summary>Whether steps are to be small.</summary>
    public bool IsSlowed => PagesMax() != int.MaxValue;

    /// <summary>Whether no step may begin, because the last one is not paid for.</summary>
    public bool IsHeldBack => _holdBack.IsActive;

    /// <summary>A step has changed the trees: tells what the store uses now, and begins the pause that the step costs.</summary>
    /// <param name="scratchBefore">Bytes of changed pages before the step.</param>
    /// <param name="behind">How far checkpoints are behind the journal, from 0 to 1.</param>
    public void StepEnded(long scratchBefore, double behind)
    {
        if (_hasEnded)
            return;
        Observe();
        var grown = _pages.ScratchBytes - scratchBefore;
        var own = _pace.PauseAfter(Own, grown);
        var ofNode = _share.PauseAfter(grown);
        _holdBack.Begin(behind, own > ofNode ? own : ofNode);
    }

    // Waiting does not return what readers hold.
    private long Own => _pages.ScratchBytes - _pages.HeldScratchBytes;

    /// <summary>A step has ended: tells what the store uses now.</summary>
    public void Observe()
    {
        if (_hasEnded)
            return;
        _index.BodyBytesMax = _share.KeptJournalMax(_context.Options.RecentBodyBytesMax);
        _pages.KeepFreePages(few: _context.Memory.IsShort);
        // What a checkpoint has placed is in use until it is returned; otherwise others would take it before.
        var used = _pages.ScratchBytes + _pages.PlacedBytes;
        _share.Set(MemoryUse.ChangedPages, used);
        _share.Set(MemoryUse.FreePages, Math.Max(0, _pages.ScratchReservedBytes - used));
        _share.Set(MemoryUse.Journal, _index.BodyBytes + ((long)_index.Count * JournalIndex.EntryBytes));
        _share.Set(MemoryUse.Requests, _requestBytes());
        _share.SetGain(Own + IndexBeyondNeed());
    }

    // The first records that no checkpoint needs any more, beyond those that may be kept for followers.
    private long IndexBeyondNeed() => _context.Memory.IsShort
        ? Math.Max(0, ((long)_index.FirstAfter(_pages.CoveredByOlderMeta.Etag) * JournalIndex.EntryBytes) - _context.Memory.KeptIndexBytesMax)
        : 0;

    /// <summary>The store has ended. What it holds counts until <see cref="Dispose"/>.</summary>
    public void End()
    {
        _hasEnded = true;
        _holdBack.Dispose();
        _share.SetGain(0);
    }

    /// <summary>The store's memory is returned.</summary>
    public void Dispose() => _share.Dispose();
}
