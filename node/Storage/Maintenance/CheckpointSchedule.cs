using System.Collections.Concurrent;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Decides when a checkpoint is written, has the checkpoint executor write it, and recycles the journal that it makes unnecessary. Writer executor, except
/// for the write itself. The write is done in steps: slowly while there is time, and without pauses when the journal grows faster than the checkpoint,
/// when somebody waits for it, or when the disk is full. A failure stops the engine; a full disk only postpones the checkpoint.
/// </summary>
internal sealed class CheckpointSchedule
{
    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly SegmentReader _reader;
    private readonly JournalWriter _journal;
    private readonly SpaceReserve _reserve;
    private readonly Func<UInt128> _bound;
    private readonly Action<Exception> _fail;
    private readonly Action _foundNoRoom;
    private readonly WorkAction _write;
    private readonly WorkAction _finish;
    private readonly WorkAction _request;
    private readonly WorkAction _lookForRest;
    private readonly ConcurrentQueue<TaskCompletionSource<CheckpointPosition>> _requested = new();

    /// <summary>Requests, each with the etag that was published when the writer took it.</summary>
    private readonly List<(UInt128 Etag, TaskCompletionSource<CheckpointPosition> Request)> _waiting = [];
    private readonly List<SnapshotSource> _sources = [];
    private Checkpoint? _running;

    /// <summary>The running checkpoint found no space for its last page.</summary>
    private bool _waitsForRoom;
    private Exception? _writeFailure;
    private Exception? _failure;
    private volatile bool _hasEnded;

    /// <summary>Stopped, and another store may replace this one. Requests wait for it.</summary>
    private bool _keepsRequests;

    /// <summary>Why requests are refused after the end; null: because the store has stopped.</summary>
    private Exception? _refusal;
    private volatile bool _isUrgent;
    private volatile ITimer? _rest;
    private ITimer? _idle;
    private long _idleJournalBytes;
    private bool _isDiskFull;
    private bool _isForSpace;
    private long _journalBytes;

    /// <summary>The journal bytes after the running checkpoint that already existed when it began.</summary>
    private long _uncoveredBytes;
    private long _startedAt;

    /// <summary>Creates the schedule; starts nothing yet.</summary>
    public CheckpointSchedule(
        StoreContext context, PageStore pages, JournalIndex index, SegmentReader reader, JournalWriter journal, SpaceReserve reserve,
        Func<UInt128> bound, Action<Exception> fail, Action foundNoRoom)
    {
        _context = context;
        _pages = pages;
        _index = index;
        _reader = reader;
        _journal = journal;
        _reserve = reserve;
        _bound = bound;
        _fail = fail;
        _foundNoRoom = foundNoRoom;
        _write = new WorkAction(Write);
        _finish = new WorkAction(Finish);
        _request = new WorkAction(TakeRequests);
        _lookForRest = new WorkAction(LookForRest);
        _startedAt = context.Time.GetTimestamp();
    }

    /// <summary>Whether the last checkpoint found no space. Any thread.</summary>
    public bool IsDiskFull
    {
        get => Volatile.Read(ref _isDiskFull);
        private set => Volatile.Write(ref _isDiskFull, value);
    }

    /// <summary>Whether a restart would have to replay more than a quiescent shard may leave. Any thread; may be out of date.</summary>
    public bool HasMuchToCover => Volatile.Read(ref _running) is not null || Volatile.Read(ref _journalBytes) >= _context.Options.CheckpointIdleJournalBytes;

    /// <summary>
    /// How far checkpoints are behind, from 0 to 1. It is 0 up to twice the amount that triggers a checkpoint, that is until the next one could start as
    /// soon as the running one ends, and 1 from four times that amount. Memory that only readers hold does not count, nor do journal bytes that the
    /// running checkpoint could not cover. Any thread.
    /// </summary>
    public double Behind
    {
        get
        {
            var options = _context.Options;
            var scratch = (double)(_pages.ScratchBytes - _pages.HeldScratchBytes) / options.CheckpointScratchBytes;
            var journal = (double)(Volatile.Read(ref _journalBytes) - Volatile.Read(ref _uncoveredBytes)) / options.CheckpointJournalBytes;
            return Math.Clamp((Math.Max(scratch, journal) - 2) / 2, 0, 1);
        }
    }

    /// <summary>Adds journal bytes to the count that triggers a checkpoint.</summary>
    public void JournalGrewBy(long bytes)
    {
        Volatile.Write(ref _journalBytes, _journalBytes + bytes);
        if (_idle is null && _journalBytes >= _context.Options.CheckpointIdleJournalBytes)
            AwaitRest();
    }

    /// <summary>Counts what was in the journal before the store was opened. Called once, when the owner is set and can receive events.</summary>
    public void CountUncovered() => JournalGrewBy(_index.BytesAfter(_pages.Covered.Etag));

    /// <summary>Starts a checkpoint if a trigger is reached and none runs.</summary>
    public void StartIfDue()
    {
        if (_running is not null || _hasEnded || IsDiskFull)
            return;
        // The state that they wait for was not durable before.
        if (_waiting.Count > 0)
        {
            Start();
            return;
        }
        var options = _context.Options;
        if (_journalBytes >= options.CheckpointJournalBytes || _pages.ScratchBytes >= options.CheckpointScratchBytes
            || (_journalBytes > 0 && _context.Time.GetElapsedTime(_startedAt) >= options.CheckpointInterval))
            Start();
    }

    /// <summary>
    /// Called when the disk is full. Starts a checkpoint, so that the journal it covers can be recycled, and takes back snapshots in progress, which hold
    /// journal back. Also retries a checkpoint that found no space.
    /// </summary>
    public void StartForSpace()
    {
        if (_hasEnded)
            return;
        TakeBack(static _ => true, "the disk is full");
        if (_running is not null && !_waitsForRoom)
            return;
        IsDiskFull = false;
        _isForSpace = true;
        if (_waitsForRoom)
            _context.Checkpoints.Post(_write);
        else
            Start();
        _waitsForRoom = false;
    }

    /// <summary>
    /// Requests a checkpoint of at least what is published when the writer takes the request. It waits until that is durable here. Any thread.
    /// </summary>
    public Task<CheckpointPosition> RequestAsync()
    {
        var request = new TaskCompletionSource<CheckpointPosition>(TaskCreationOptions.RunContinuationsAsynchronously);
        _requested.Enqueue(request);
        _context.Writer.Post(_request);
        return request.Task;
    }

    /// <summary>Pins the newest checkpoint, and the journal after it, for a replica that is too far behind.</summary>
    public SnapshotSource OpenSource()
    {
        var source = new SnapshotSource(_pages.Pin(), closed => _sources.Remove(closed));
        _sources.Add(source);
        return source;
    }

    /// <summary>Called when the engine has failed; waiters get the reason.</summary>
    public void Fail(Exception first)
    {
        _failure = first;
        End();
    }

    /// <summary>
    /// Called when the store stops, perhaps because another one replaces it. Requests wait for <see cref="TakeOver"/> or <see cref="EndRequests"/>.
    /// </summary>
    public void Stop()
    {
        _keepsRequests = _failure is null;
        End();
    }

    /// <summary>Called when no store replaces this one, or, for the given reason, it is unknown when one will. Requests then fail.</summary>
    public void EndRequests(Exception? reason = null)
    {
        (_keepsRequests, _refusal) = (false, reason);
        TakeRequests();
    }

    /// <summary>Takes over the requests of the store that this one replaces, which has nothing newer.</summary>
    public void TakeOver(CheckpointSchedule before)
    {
        foreach (var (_, request) in before._waiting)
            _requested.Enqueue(request);
        before._waiting.Clear();
        while (before._requested.TryDequeue(out var request))
            _requested.Enqueue(request);
        before._keepsRequests = false;
        if (!_requested.IsEmpty)
            _context.Writer.Post(_request);
    }

    private void End()
    {
        _hasEnded = true;
        _rest?.Dispose();
        _idle?.Dispose();
        TakeRequests();
    }

    private void AwaitRest()
    {
        _idleJournalBytes = _journalBytes;
        _idle?.Dispose();
        _idle = _context.Time.CreateTimer(_ => _context.Writer.Post(_lookForRest), null, _context.Options.CheckpointIdleTime, Timeout.InfiniteTimeSpan);
    }

    /// <summary>If no record has arrived for a while, starts a checkpoint of what came before, so that a restart has nothing to replay.</summary>
    private void LookForRest()
    {
        if (_hasEnded)
            return;
        if (_running is null && !IsDiskFull && _journalBytes >= _context.Options.CheckpointIdleJournalBytes && _journalBytes == _idleJournalBytes)
            Start();
        if (!_hasEnded && _journalBytes >= _context.Options.CheckpointIdleJournalBytes)
        {
            AwaitRest();
            return;
        }
        _idle?.Dispose();
        _idle = null;
    }

    private void TakeRequests()
    {
        while (_requested.TryDequeue(out var request))
            _waiting.Add((_pages.PublishedEtag, request));
        if (_hasEnded && !_keepsRequests)
            EndWaiting(_refusal ?? new StoreStoppedException(_failure));
        else if (_hasEnded)
            return;
        else if (_running is null && _waiting.Count > 0)
            Start();
        _isUrgent |= _waiting.Count > 0;
    }

    private void Start()
    {
        _startedAt = _context.Time.GetTimestamp();
        try
        {
            _running = _pages.BeginCheckpoint(CoverageOf, _bound(), repeats: _isForSpace);
        }
        catch (Exception exception)
        {
            _fail(exception);
            return;
        }
        if (_running is not null)
        {
            _isUrgent = _isForSpace || _waiting.Count > 0;
            // Not zero: the applied state may be far behind the journal's end.
            Volatile.Write(ref _uncoveredBytes, _index.BytesAfter(_running.Etag));
            Volatile.Write(ref _journalBytes, _uncoveredBytes);
            _context.Checkpoints.Post(_write);
            return;
        }
        if (_isForSpace)
            RecycleJournal();
        _isForSpace = false;
        AnswerCovered();
    }

    /// <summary>Answers each request as soon as what it asked for is covered. Under load there is always something newer to cover.</summary>
    private void AnswerCovered()
    {
        var covered = _pages.Covered;
        foreach (var (etag, request) in _waiting)
        {
            if (etag <= covered.Etag)
                request.SetResult(covered);
        }
        _waiting.RemoveAll(waiting => waiting.Etag <= covered.Etag);
    }

    private CheckpointPosition CoverageOf(UInt128 etag)
    {
        if (etag == _pages.Covered.Etag)
            return _pages.Covered;
        var entry = _index.Find(etag);
        Invariant.Check(entry is { IsDurable: true }, $"The last record of a checkpoint, {etag}, is not in the journal or not durable.");
        return new CheckpointPosition(etag, new JournalPosition(entry.Segment, entry.End), entry.Record.Checksum);
    }

    /// <summary>Takes one step on the checkpoint executor. The end of the store also passes through that executor, and no step follows it.</summary>
    private void Write()
    {
        if (_hasEnded)
            return;
        try
        {
            if (!_running!.WriteStep())
            {
                GoOnAfterARest();
                return;
            }
        }
        catch (Exception exception)
        {
            _writeFailure = exception;
        }
        _context.Writer.Post(_finish);
    }

    private void GoOnAfterARest()
    {
        var need = (double)(Volatile.Read(ref _journalBytes) - _uncoveredBytes) / _context.Options.CheckpointJournalBytes;
        // Paced to end when half of the journal bytes that trigger the next checkpoint have been written.
        if (_isUrgent || Behind > 0 || 2 * need >= _running!.Progress)
        {
            _context.Checkpoints.Post(_write);
            return;
        }
        var rest = TimeSpan.FromSeconds((double)_context.Options.Pages.WriteBytes / _context.Options.CheckpointBytesPerSecond);
        _rest?.Dispose();
        _rest = _context.Time.CreateTimer(_ => _context.Checkpoints.Post(_write), null, rest, Timeout.InfiniteTimeSpan);
    }

    private void Finish()
    {
        if (_hasEnded)
            return;
        var checkpoint = _running!;
        var failure = _writeFailure;
        (_running, _writeFailure) = (null, null);
        try
        {
            if (failure is StorageIoException { IsDiskFull: true } && !checkpoint.MayBeAbandoned)
                WaitForRoom(checkpoint, failure);
            else if (failure is StorageIoException { IsDiskFull: true })
                PutOff(checkpoint, failure);
            else if (failure is not null)
                _fail(failure);
            else
                Complete(checkpoint);
        }
        catch (Exception exception)
        {
            _fail(exception);
        }
    }

    private void Complete(Checkpoint checkpoint)
    {
        _pages.FinishCheckpoint(checkpoint);
        if (_context.Observer.IsWatching)
            _context.Observer.CheckpointWritten(checkpoint.PageBytes, _context.Time.GetElapsedTime(_startedAt));
        IsDiskFull = false;
        RecycleJournal();
        _isForSpace = false;
        // Requests made meanwhile may need more than this checkpoint covers.
        AnswerCovered();
        if (_waiting.Count > 0)
            Start();
    }

    /// <summary>
    /// Handles a meta page that found no space although its page is allocated. Whatever part of it reached the disk may count after a restart, so the
    /// checkpoint is written again and not abandoned.
    /// </summary>
    private void WaitForRoom(Checkpoint checkpoint, Exception failure)
    {
        _running = checkpoint;
        if (_reserve.Release())
        {
            _context.Checkpoints.Post(_write);
            return;
        }
        _waitsForRoom = true;
        IsDiskFull = true;
        EndWaiting(failure);
        _foundNoRoom();
    }

    private void PutOff(Checkpoint checkpoint, Exception failure)
    {
        _pages.AbandonCheckpoint(checkpoint);
        if (_reserve.Release())
        {
            Start();
            return;
        }
        IsDiskFull = true;
        EndWaiting(failure);
        _foundNoRoom();
    }

    private void EndWaiting(Exception exception)
    {
        foreach (var (_, request) in _waiting)
            request.SetException(exception);
        _waiting.Clear();
    }

    private void TakeBack(Predicate<SnapshotSource> which, string reason)
    {
        foreach (var source in _sources.FindAll(which))
            source.TakeBack(reason);
    }

    /// <summary>
    /// Recycles segments that neither the older meta page (S5) nor a snapshot in progress needs, as far as the segments kept for followers exceed their
    /// bound. On a full disk none are kept for followers.
    /// </summary>
    private void RecycleJournal()
    {
        TakeBack(
            source => _index.BytesAfter(source.Covers.Etag) > Math.Max(_context.Options.SnapshotPinnedBytesMax, source.BytesTotal),
            "the shard has written more journal since than a snapshot may retain");
        var needed = _sources.Aggregate(
            _context.Rules.RecoversFrom(_pages).Position.Segment, (lowest, source) => Math.Min(lowest, source.Covers.Position.Segment));
        var covered = 0;
        var coveredBytes = 0L;
        while (covered < _index.Count && _index[covered].IsDurable && _index[covered].Segment < needed)
            coveredBytes += RecordEnvelope.RecordBytes(_index[covered++].Record.BodyBytes);
        var retainedBytes = _journal.IsDiskFull || _isForSpace ? 0 : _context.Options.RetainedJournalBytes;
        var dropped = 0;
        while (dropped < covered && coveredBytes > retainedBytes)
        {
            var segment = _index[dropped].Segment;
            while (dropped < covered && _index[dropped].Segment == segment)
                coveredBytes -= RecordEnvelope.RecordBytes(_index[dropped++].Record.BodyBytes);
        }
        if (dropped == 0)
            return;
        var lowest = dropped < _index.Count ? _index[dropped].Segment : needed;
        _index.RemoveOldest(dropped);
        _reader.Close();
        _journal.Enqueue(new JournalJob(JournalJobKind.Recycle) { Number = Math.Min(lowest, needed) });
    }
}
