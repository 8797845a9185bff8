using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Gives back the disk space that a quiescent store does not need: large segments of the journal, and, if much of the data file is not in use, all its free
/// pages, also those between pages in use. Owned by <see cref="CheckpointSchedule"/>; writer executor.
/// </summary>
/// <remarks>
/// Each quiescent period has at most two checkpoints: the first covers what is published, and the second makes the older meta page cover it too, so that
/// journal and retired pages are not needed any more. Neither writes a page of the trees that did not change, and no page is moved. Then the free pages become
/// holes, one call for each run. What readers or pins still hold follows later.
/// </remarks>
internal sealed class QuiescentReturn : IDisposable
{
    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly JournalWriter _journal;
    private readonly CheckpointSchedule _checkpoints;
    private readonly string _directory;
    private readonly QuiescenceTimer _quiescence;

    /// <summary>The progress of the quiescent period that is being used, and the one in which everything was given back.</summary>
    private long _progressBegun = -1;
    private long _progressDone = -1;

    /// <summary>Creates it; nothing happens before <see cref="Changed"/>.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">Nothing is done when the store has ended.</param>
    /// <param name="pages">The data file.</param>
    /// <param name="index">The journal's records.</param>
    /// <param name="journal">Its segments.</param>
    /// <param name="checkpoints">The owner, which writes the checkpoints.</param>
    public QuiescentReturn(
        StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, JournalWriter journal, CheckpointSchedule checkpoints)
    {
        (_context, _pages, _index, _journal, _checkpoints) = (context, pages, index, journal, checkpoints);
        _directory = Path.GetDirectoryName(pages.File.Path)!;
        _quiescence = new QuiescenceTimer(context, life, IsWanted, () => Progress, OnQuiescent);
    }

    private long Progress => (long)_index.Last.Etag.Change;

    /// <summary>Called when a record was appended.</summary>
    public void Changed() => _quiescence.Changed();

    /// <summary>Called when a checkpoint has ended. Goes on at once in a quiescent period that has begun.</summary>
    public void CheckpointEnded()
    {
        if (Progress == _progressBegun && Progress != _progressDone)
            OnQuiescent();
        Changed();
    }

    /// <inheritdoc/>
    public void Dispose() => _quiescence.Dispose();

    private bool IsWanted() => Progress != _progressDone && (!_journal.IsSmall || HasMuchJournal || (!_checkpoints.IsRunning && _pages.HasMuchSpare));

    /// <summary>Whether the journal has more than what is kept for followers and a first segment.</summary>
    private bool HasMuchJournal => _journal.Bytes > _context.Options.RetainedJournalBytes + (2L * _context.Options.SegmentBytesMin);

    /// <summary>
    /// Whether the disk has space for two checkpoints. On a disk that is nearly full the space is better kept for the next one, without which nothing is freed:
    /// others may take what is given back.
    /// </summary>
    private bool HasMuchRoom() =>
        _context.Files.AvailableBytes(_directory) >= 2 * Math.Max(_context.ChangedBytesForCheckpoint, _pages.ChangedFileBytes);

    private void OnQuiescent()
    {
        // The timer tries again.
        if (_checkpoints.IsRunning || _checkpoints.IsDiskFull || _journal.IsDiskFull || !HasMuchRoom())
            return;
        var progress = _progressBegun = Progress;
        if (!_journal.IsSmall)
            _journal.Enqueue(new JournalJob(JournalJobKind.Shrink));
        if (((HasMuchJournal || _pages.HasMuchSpare) && _checkpoints.TryCoverTwice()) || !_journal.IsSmall)
            return;
        _checkpoints.GiveBack(() => Progress == progress);
        // Otherwise the timer tries again, until readers and pins are gone.
        if (!_pages.IsMuchSpareHeld)
            _progressDone = progress;
    }
}
