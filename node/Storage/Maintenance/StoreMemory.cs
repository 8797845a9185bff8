using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// One store's side of the node's memory: tells the account at the end of each step what the store uses, drops what is only cached when memory is short or
/// the store is quiescent, starts a checkpoint when the account asks, and says when the next step may begin. A store also has a bound of its own, so that one
/// busy store does not take the whole budget before its checkpoints keep up. Owned by a store; writer executor.
/// </summary>
internal sealed class StoreMemory : IDisposable
{
    /// <summary>Multiples of the changed pages that start a checkpoint: from the first on a store is slowed, at the second it gets the least.</summary>
    private const int SlowFromTimes = 2;
    private const int MaxTimes = 4;

    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly CheckpointSchedule _checkpoints;
    private readonly MemoryAccount.Share _share;
    private readonly GrowthPace _pace;
    private readonly WriterPause _pause;
    private readonly QuiescenceTimer _quiescence;
    private readonly Action _resume;
    private GrowthPace.Turn _turn;
    private long _steps;

    /// <summary>The steps after which a quiescent store has returned what it can.</summary>
    private long _stepsReturned;
    private bool _hasEnded;

    /// <summary>Joins the node's account.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">A failure ends the store.</param>
    /// <param name="pages">Provides the changed pages.</param>
    /// <param name="index">Provides the bodies of the journal.</param>
    /// <param name="checkpoints">Written when the account asks.</param>
    /// <param name="resume">Called when a pause is over, and steps may follow.</param>
    public StoreMemory(StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, CheckpointSchedule checkpoints, Action resume)
    {
        (_context, _pages, _index, _checkpoints, _resume) = (context, pages, index, checkpoints, resume);
        var bytes = context.ChangedBytesForCheckpoint;
        _pace = new GrowthPace(SlowFromTimes * bytes, MaxTimes * bytes, TimeSpan.FromMilliseconds(100), context.Time);
        var relieve = life.Guarded(Relieve);
        _pause = new WriterPause(context, () => life.Guard(OnPauseEnded));
        _quiescence = new QuiescenceTimer(context, life, () => _steps != _stepsReturned || pages.HeldScratchBytes > 0, () => _steps, OnQuiescent);
        _share = context.Memory.Join(() => context.Writer.Post(relieve), () => checkpoints.IsRunning && !checkpoints.IsDiskFull);
        checkpoints.Released = OnReleased;
        checkpoints.Ended = () =>
        {
            // A small checkpoint has nothing to release in steps, but the memory of its pages is free now, so it counts as a step.
            _steps++;
            Observe();
            _share.Relieved();
        };
    }

    /// <summary>The pages that the next step may make.</summary>
    public int PagesMax() => Math.Min(_share.PagesMax(), _pace.PagesMax(_pages.ChangedBytes, writers: 1));

    /// <summary>Bytes of bodies that may wait for the disk.</summary>
    public long BodyBytesWaitingMax => _share.BodyBytesMax(_context.Options.WaitingBodyBytesMax);

    /// <summary>Bytes that the checkpoints of the node's other stores write, which need space on the same disk.</summary>
    public long OthersFileBytes => _share.OthersFileBytes;

    /// <summary>Whether no step may begin, as far as is known without asking.</summary>
    public bool IsHeldBack => _pause.IsActive;

    /// <summary>Whether a step may begin now. If not, a pause is under way, whose end is told.</summary>
    public bool TryBegin()
    {
        if (!_pause.IsActive)
            Pause(behind: 0);
        return !_pause.IsActive;
    }

    /// <summary>A step has changed the trees: tells what the store uses now, and begins the pause that the step costs.</summary>
    /// <param name="scratchBefore">Bytes of changed pages before the step.</param>
    /// <param name="behind">How far checkpoints are behind the journal, from 0 to 1.</param>
    public void StepEnded(long scratchBefore, double behind)
    {
        if (_hasEnded)
            return;
        _steps++;
        Observe();
        var grown = _pages.ScratchBytes - scratchBefore;
        _pace.End(_turn, _pages.ChangedBytes, grown);
        _turn = default;
        _share.StepEnded(grown);
        Pause(behind);
    }

    /// <summary>A step has ended: tells what the store uses now.</summary>
    public void Observe()
    {
        if (_hasEnded)
            return;
        _index.BodyBytesMax = _share.BodyBytesMax(_context.Options.RecentBodyBytesMax);
        _pages.KeepFreePages(_context.Memory.IsShort ? 0 : Math.Max(_context.Options.Pages.FreeScratchBytesMax, _context.Memory.ChangedPagesPlenty));
        _pages.BoundHeldScratch(_share.ReaderBytesMax, _share.DigestBytesMax);
        var (held, forDigests) = (_pages.HeldScratchBytes, _pages.DigestScratchBytes);
        // Pages that a checkpoint has placed count as in use until their memory is returned. Otherwise other stores would take that memory before. So do the
        // holes between deltas and behind runs, which go with these and not before.
        var used = _pages.ScratchBytes + _pages.PlacedBytes + _pages.ScratchHoleBytes;
        _share.Set(MemoryUse.ChangedPages, Math.Max(0, used - held) + _pages.CheckpointListBytes);
        _share.SetFolds(_pages.ChangedFileBytes - _pages.ChangedBytes - _pages.ScratchHoleBytes);
        _share.Set(MemoryUse.ReaderPages, held - forDigests);
        _share.Set(MemoryUse.DigestPages, forDigests);
        var free = Math.Max(0, _pages.ScratchReservedBytes - used);
        _share.Set(MemoryUse.FreePages, free);
        ObserveJournal();
        _share.SetGain(GainOfCheckpoint() + (_context.Memory.IsShort ? free : 0));
        _quiescence.Changed();
    }

    /// <summary>A record was appended: tells what the journal uses now.</summary>
    public void ObserveJournal()
    {
        _share.Set(MemoryUse.Journal, _index.BodyBytes);
        _share.Set(MemoryUse.JournalIndex, (long)_index.Count * JournalIndex.EntryBytes);
    }

    private long GainOfCheckpoint() => _pages.ChangedBytes + IndexBeyondNeed() + HolesForCheckpoint();

    // Holes beside what readers hold would be there after each checkpoint, and those beside what is placed go without another one.
    private long HolesForCheckpoint() => _pages.HeldScratchBytes == 0 && _pages.PlacedBytes == 0 ? _pages.ScratchHoleBytes : 0;

    // The first records that no checkpoint needs any more, beyond those that may be kept for followers.
    private long IndexBeyondNeed() => _context.Memory.IsShort
        ? Math.Max(0, ((long)_index.FirstAfter(_pages.CoveredByOlderMeta.Etag) * JournalIndex.EntryBytes) - _context.Memory.KeptIndexBytesMax)
        : 0;

    /// <summary>The store has ended. What it holds counts until <see cref="Dispose"/>.</summary>
    public void End()
    {
        _hasEnded = true;
        _pause.Dispose();
        _quiescence.Dispose();
        _share.Hold(TimeSpan.Zero);
        _share.SetGain(0);
    }

    /// <summary>The store's memory is returned.</summary>
    public void Dispose() => _share.Dispose();

    private void Pause(double behind)
    {
        // Waiting does not return what readers hold.
        var own = _pages.ChangedBytes;
        if (_turn.IsNone)
            _turn = _pace.Enter(own, writers: 1);
        var forOwn = _pace.WaitFor(_turn, own);
        var forNode = _share.WaitForTurn();
        _pause.Begin(behind, forOwn > forNode ? forOwn : forNode);
        _share.Hold(_pause.IsActive ? forNode : TimeSpan.Zero);
    }

    private void OnPauseEnded()
    {
        // The store goes on when its turn has come, which takes longer if others took more than theirs, or memory was not returned.
        Pause(behind: 0);
        if (!_pause.IsActive)
            _resume();
    }

    private void OnReleased()
    {
        // Memory that a checkpoint leaves free would otherwise count until the store is asked to return it. The next steps take memory anew if they need it.
        // What is more than a step's comes before, in steps.
        if (_pages.PlacedBytes == 0 && !_pages.HasMoreToRelease && _context.Memory.IsShort)
            _pages.ReturnFreePages();
        // A quiescent store had nothing to do until its checkpoint.
        _steps++;
        Observe();
    }

    private void Relieve()
    {
        _pages.ReturnFreePages();
        _checkpoints.BeginRelease();
        Observe();
        // What was free may have been enough. A checkpoint begun early writes the same leaves for fewer changes.
        if (!_context.Memory.IsShort)
            _share.Relieved();
        else if (GainOfCheckpoint() >= MemoryAccount.GainBytesMin)
            _checkpoints.StartForMemory();
        else if (_share.Gain < MemoryAccount.GainBytesMin)
            _share.Relieved();
        // Otherwise the system has taken less than was free. Asked again at once, the store would not do anything else any more.
    }

    // Returns the memory that the last steps have left, and what readers held that are gone by now. Nothing else does.
    private void OnQuiescent()
    {
        _stepsReturned = _steps;
        _pages.ReturnFreePages();
        _checkpoints.BeginRelease();
        Observe();
        if (_pages.ChangedBytes + HolesForCheckpoint() >= _context.Options.CheckpointQuiescentScratchBytes)
            _checkpoints.StartQuiescent();
    }
}
