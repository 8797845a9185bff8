using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage;

/// <summary>
/// The end of a store, by stages: every waiter is answered, what the journal still has is written, the directory is quiet, and after the last reader the
/// data file is released. Writer executor, unless a member says otherwise; the executors keep running meanwhile.
/// </summary>
internal sealed class StoreShutdown
{
    private static readonly TimeSpan ReaderGrace = TimeSpan.FromSeconds(10);
    private static readonly TimeSpan ReaderPoll = TimeSpan.FromMilliseconds(20);
    private readonly StoreContext _context;
    private readonly StoreLifecycle _life;
    private readonly string _directory;
    private readonly PageStore _pages;
    private readonly SegmentReader _reader;
    private readonly JournalWriter _journal;
    private readonly CheckpointSchedule _checkpoints;
    private readonly StoreMemory _memory;
    private readonly Action _answerAll;
    private readonly TaskCompletionSource _closed = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private volatile bool _isClosing;
    private long? _readersAwaitedSince;
    private ITimer? _poll;

    /// <summary>Nothing ends yet.</summary>
    /// <param name="context">The shard's executors, disk and clock.</param>
    /// <param name="life">Advanced with each stage.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="pages">Released at the end.</param>
    /// <param name="reader">Released with the journal.</param>
    /// <param name="journal">Writes what is queued, and is then released.</param>
    /// <param name="checkpoints">Has requests that wait for another store when this one stops, and fail when it closes.</param>
    /// <param name="memory">Released with the trees.</param>
    /// <param name="answerAll">Called once: answers every waiter and ends all background work.</param>
    public StoreShutdown(
        StoreContext context, StoreLifecycle life, string directory, PageStore pages, SegmentReader reader, JournalWriter journal,
        CheckpointSchedule checkpoints, StoreMemory memory, Action answerAll)
    {
        (_context, _life, _directory, _answerAll) = (context, life, directory, answerAll);
        (_pages, _reader, _journal, _checkpoints, _memory) = (pages, reader, journal, checkpoints, memory);
    }

    /// <summary>Whether new readers may begin. Stopping alone does not keep them out. Any thread.</summary>
    public bool AdmitsReaders => !_isClosing && _life.Failure is null;

    /// <summary>
    /// Stops the store except for its readers, while its executors keep running. All waiters are answered and everything queued in the journal is written.
    /// Called once, before <see cref="CloseAsync"/>. Writer executor; no event follows.
    /// </summary>
    /// <param name="quiet">Called on the writer executor when this store no longer changes anything in its directory.</param>
    public void Stop(Action quiet)
    {
        var isFirst = _life.TryStop();
        Invariant.Check(isFirst, $"'{_directory}' was stopped twice.");
        _context.Writer.Post(new WorkAction(() => BeginStop(quiet)));
    }

    /// <summary>
    /// Stops the store, if it is not stopped, and then its readers. No new reader is admitted, the existing ones may continue for ten seconds, then the
    /// data file is released. Any thread; when called on the writer executor, no event follows.
    /// </summary>
    public Task CloseAsync()
    {
        _isClosing = true;
        _life.TryStop();
        _context.Writer.Post(new WorkAction(BeginClose));
        return _closed.Task;
    }

    /// <summary>Goes through all stages at once. The executors must no longer run anything of the store, and no snapshot may be open.</summary>
    public void CloseNow()
    {
        _isClosing = true;
        _life.TryStop();
        AnswerAll();
        _checkpoints.EndRequests();
        SettleJournal();
        ReleaseJournal();
        _pages.Dispose();
        _memory.Dispose();
        _life.Advance(StorePhase.Closed);
        _closed.TrySetResult();
    }

    private void BeginClose()
    {
        BeginStop(quiet: null);
        _checkpoints.EndRequests();
        AwaitReaders();
    }

    private void BeginStop(Action? quiet)
    {
        if (_life.IsStopped)
            return;
        AnswerAll();
        // Queued after everything that the journal and the checkpoint executor still have of this store.
        var becameQuiet = new WorkAction(() =>
        {
            ReleaseJournal();
            quiet?.Invoke();
            AwaitReaders();
        });
        var passCheckpoints = new WorkAction(() =>
        {
            SettleJournal();
            RemoveMark();
            _context.Writer.Post(becameQuiet);
        });
        _journal.Stop(() => _context.Checkpoints.Post(passCheckpoints));
    }

    /// <summary>Not the writer executor, which would wait for the disk.</summary>
    private void SettleJournal()
    {
        try
        {
            _journal.Settle();
        }
        catch (StorageIoException failure)
        {
            // The shared journal has failed with it, so it stays for the next start, and no shard of the node writes any more.
            StoreLog.JournalNotSettled(_context.Log, _directory, failure.Message);
        }
    }

    private void AnswerAll()
    {
        // The phase advances first, so that a caller that adds a request after the last one was answered sees it.
        _life.Advance(StorePhase.Stopped);
        _answerAll();
    }

    /// <summary>
    /// Removes the mark of an open directory, which was closed cleanly. After a failure the mark stays, so that the next open checks everything.
    /// </summary>
    private void RemoveMark()
    {
        // A journal that failed after the stop was asked for has not failed the store, but what it holds is unknown.
        if (_life.Failure is not null || _journal.Failure is not null || _context.SharedJournal is { Failure: not null })
            return;
        try
        {
            _context.Files.Delete(new StoreLayout(_directory).Running);
        }
        catch (StorageIoException failure)
        {
            StoreLog.StaysMarked(_context.Log, _directory, failure.Message);
        }
    }

    private void ReleaseJournal()
    {
        _journal.Dispose();
        _reader.Dispose();
        _life.Advance(StorePhase.Quiet);
    }

    private void AwaitReaders()
    {
        if (!_isClosing || _life.Phase != StorePhase.Quiet)
            return;
        _readersAwaitedSince ??= _context.Time.GetTimestamp();
        var hasReaders = _pages.Roots.Readers.Any();
        if (hasReaders && _context.Time.GetElapsedTime(_readersAwaitedSince.Value) < ReaderGrace)
        {
            _poll ??= _context.Time.CreateTimer(
                _ => _context.Writer.Post(new WorkAction(AwaitReaders)), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
            _poll.Change(ReaderPoll, Timeout.InfiniteTimeSpan);
            return;
        }
        _poll?.Dispose();
        // Unmapping under a reader would crash the process, so the mapping is left to the readers and finally to the finalizer.
        if (!hasReaders)
            _pages.Dispose();
        _memory.Dispose();
        _life.Advance(StorePhase.Closed);
        _closed.SetResult();
    }
}
