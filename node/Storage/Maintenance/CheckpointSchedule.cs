using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Decides when a checkpoint is written, and has the checkpoint executor write it. Writer executor, except for the write itself. The write is done in
/// steps: slowly while there is time, and without pauses when the journal grows faster than the checkpoint, when somebody waits for it, or when the disk
/// is full. A failure stops the engine; a full disk only postpones the checkpoint.
/// </summary>
internal sealed class CheckpointSchedule
{
    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly SpaceReserve _reserve;
    private readonly Func<Etag> _bound;
    private readonly StoreLifecycle _life;
    private readonly Action _foundNoRoom;
    private readonly CheckpointBacklog _backlog;
    private readonly CheckpointRequests _requests;
    private readonly JournalRecycling _recycling;
    private readonly QuiescenceTimer _quiescence;
    private readonly SpaceReturn _return;
    private readonly QuiescentReturn _quiescentReturn;
    private readonly WorkAction _write;
    private readonly IWorkItem _finish;
    private readonly IWorkItem _release;
    private readonly ITimer _rest;
    private Checkpoint? _running;

    /// <summary>The running checkpoint found no space for its last page.</summary>
    private bool _waitsForRoom;
    private Exception? _writeFailure;
    private Exception? _failure;
    private volatile bool _hasEnded;
    private volatile bool _isUrgent;
    private bool _isDiskFull;
    private bool _isForSpace;
    private bool _isReleasing;
    private long _startedAt;

    /// <summary>Creates the schedule; starts nothing yet.</summary>
    /// <param name="context">The shard's executors, clock and bounds.</param>
    /// <param name="life">Ended by a failure.</param>
    /// <param name="pages">The trees.</param>
    /// <param name="index">The journal's records.</param>
    /// <param name="holds">Who else needs the journal.</param>
    /// <param name="reader">Closed before segments are recycled.</param>
    /// <param name="journal">Recycles segments.</param>
    /// <param name="reserve">Released when the disk is full.</param>
    /// <param name="bound">Returns the last etag that a checkpoint may cover: the lesser of the committed and the locally durable one.</param>
    /// <param name="foundNoRoom">Called when the disk is full.</param>
    public CheckpointSchedule(
        StoreContext context,
        StoreLifecycle life, PageStore pages, JournalIndex index, JournalHolds holds, SegmentReader reader, JournalWriter journal, SpaceReserve reserve,
        Func<Etag> bound, Action foundNoRoom)
    {
        _context = context;
        _pages = pages;
        _index = index;
        _reserve = reserve;
        _bound = bound;
        _life = life;
        _foundNoRoom = foundNoRoom;
        _backlog = new CheckpointBacklog(context, pages, index);
        _requests = new CheckpointRequests(context, pages, () => life.Guard(OnRequested));
        _recycling = new JournalRecycling(context, pages, index, holds, reader, journal);
        _quiescence = new QuiescenceTimer(context, life, () => _backlog.IsMuchToReplay, () => _backlog.JournalBytes, StartQuiescent);
        _return = new SpaceReturn(context, life, pages, () => _running is not null);
        _quiescentReturn = new QuiescentReturn(context, life, pages, index, journal, this);
        _write = new WorkAction(Write);
        _finish = life.Guarded(Finish);
        _release = life.Guarded(Release);
        _rest = context.Time.CreateTimer(_ => context.Checkpoints.Post(_write), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _startedAt = context.Time.GetTimestamp();
    }

    /// <summary>Whether the last checkpoint found no space. Any thread.</summary>
    public bool IsDiskFull
    {
        get => Volatile.Read(ref _isDiskFull);
        private set => Volatile.Write(ref _isDiskFull, value);
    }

    /// <summary>Whether a checkpoint is being written. Any thread; may be out of date.</summary>
    public bool IsRunning => Volatile.Read(ref _running) is not null;

    /// <summary>Bytes of pages that the running checkpoint has written. Any thread; may be out of date.</summary>
    public long BytesWritten => Volatile.Read(ref _running)?.PageBytes ?? 0;

    /// <summary>Whether a restart would have to replay more than a quiescent store may leave. Any thread; may be out of date.</summary>
    public bool HasMuchToCover => IsRunning || _backlog.IsMuchToReplay;

    /// <inheritdoc cref="CheckpointBacklog.JournalBehind"/>
    public double JournalBehind => _backlog.JournalBehind;

    /// <summary>Called on the writer executor when a checkpoint is durable. Its memory is returned from then on.</summary>
    public Action Ended { get; set; } = static () => { };

    /// <summary>Called on the writer executor when some of a checkpoint's memory is returned.</summary>
    public Action Released { get; set; } = static () => { };

    /// <inheritdoc cref="JournalRecycling.KeptBytes"/>
    public long JournalKeptBytes => _recycling.KeptBytes;

    /// <summary>Adds journal bytes to the count that triggers a checkpoint.</summary>
    public void JournalGrewBy(long bytes)
    {
        _backlog.Add(bytes);
        _quiescence.Changed();
        _quiescentReturn.Changed();
    }

    /// <summary>Counts what was in the journal before the store was opened. Called once, when the owner is set and can receive events.</summary>
    public void CountUncovered()
    {
        JournalGrewBy(_index.BytesAfter(_pages.Covered.Etag));
        _recycling.CountKept();
    }

    /// <summary>Starts a checkpoint if a trigger is reached and none runs. Also begins to return what readers held that have ended.</summary>
    public void StartIfDue()
    {
        BeginRelease();
        if (_running is not null || _hasEnded || IsDiskFull)
            return;
        // A request may still wait, because the state that it wants covered was not durable when the last checkpoint began.
        if (_requests.Any || _backlog.IsDue || (_backlog.JournalBytes > 0 && _context.Time.GetElapsedTime(_startedAt) >= _context.Options.CheckpointInterval))
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
        _recycling.TakeBackSources("the disk is full");
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
    /// Called when the disk is nearly full, or another store on it lacks space: covers the journal, and recycles all that is covered then, also what is kept
    /// for followers. The older meta page may need a second call. Snapshots in progress go on.
    /// </summary>
    public void StartToGiveWay()
    {
        if (_hasEnded || IsDiskFull)
            return;
        _isForSpace = true;
        if (_running is null)
            Start();
        else
            _isUrgent = true;
    }

    /// <summary>
    /// Called when memory is short: writes a checkpoint without pauses, or the running one. If there is none to write, drops journal that is only kept.
    /// </summary>
    public void StartForMemory()
    {
        if (_hasEnded || IsDiskFull)
            return;
        if (_running is null)
            Start();
        if (_running is null && !_hasEnded)
            _recycling.Recycle(isForSpace: false);
        _isUrgent = true;
    }

    /// <summary>
    /// Called when the store is quiescent: covers early what came before, so that a restart has nothing to replay and the memory of changed pages is returned.
    /// </summary>
    public void StartQuiescent()
    {
        if (_running is null && !IsDiskFull && !_hasEnded)
            Start();
    }

    /// <summary>
    /// Called when the store is quiescent: writes a checkpoint, and one more with the next call, so that neither meta page needs journal, and all that was
    /// freed is reusable. False if both cover everything.
    /// </summary>
    public bool TryCoverTwice()
    {
        if (_pages.CoveredByOlderMeta.Etag == _pages.Roots.PublishedEtag)
            return false;
        Start(repeats: true);
        return true;
    }

    /// <summary>
    /// Called when the store is quiescent: gives back what is free in the file, as far as the store stays quiescent, and journal that nobody needs.
    /// </summary>
    public void GiveBack(Func<bool> isIdle)
    {
        _recycling.Recycle(isForSpace: false);
        if (!_pages.HasMuchSpare)
            return;
        // What readers have let go.
        _pages.ReleaseSome();
        BeginRelease();
        _pages.Free.SearchAgain();
        _return.Start(FreeMap.HolePagesMinAny, isIdle);
    }

    /// <summary>
    /// Writes a checkpoint of at least the state that is published when the writer takes the request, and returns what it covers. It waits for published
    /// records that are not durable here yet, as on a follower with a slow disk. It fails with the store, or when the disk is full. If the store stops
    /// first, the request waits for the one that replaces it. Any thread.
    /// </summary>
    public Task<CheckpointPosition> RequestAsync() => _requests.AddAsync();

    /// <summary>
    /// Pins the newest checkpoint for a replica that is too far behind and receives it with <see cref="SnapshotInstaller"/>. The caller disposes it,
    /// before the store, when that replica continues from the journal or is gone.
    /// </summary>
    /// <exception cref="StoreStoppedException">The engine has stopped.</exception>
    public SnapshotSource OpenSource() => _life.HasEnded ? throw new StoreStoppedException(_life.Failure) : _recycling.OpenSource();

    /// <summary>Called when the engine has failed; waiters get the reason.</summary>
    public void Fail(Exception first)
    {
        _failure = first;
        End();
        _requests.Refuse(new StoreStoppedException(first));
    }

    /// <summary>
    /// Called when the store stops, perhaps because another one replaces it. Requests wait for <see cref="TakeOver"/> or <see cref="EndRequests"/>.
    /// </summary>
    public void Stop()
    {
        End();
        _requests.Keep();
    }

    /// <summary>
    /// Fails all pending and later checkpoint requests of a stopped store that no other store replaces, or none until there is disk space. Final, so
    /// only after <see cref="Stop"/> or <see cref="Fail"/>. Writer executor.
    /// </summary>
    /// <param name="reason">The exception they get; null says that the store has stopped.</param>
    public void EndRequests(Exception? reason = null)
    {
        Invariant.Check(_hasEnded, $"The checkpoint requests of a store that works were ended: {reason?.Message ?? "it was to stop"}");
        _requests.Refuse(reason ?? new StoreStoppedException(_failure));
    }

    /// <inheritdoc cref="CheckpointRequests.TakeOver"/>
    public void TakeOver(CheckpointSchedule before) => _requests.TakeOver(before._requests);

    private void End()
    {
        _hasEnded = true;
        _rest.Dispose();
        _quiescence.Dispose();
        _quiescentReturn.Dispose();
        _return.Dispose();
    }

    private void OnRequested()
    {
        if (_running is null)
            Start();
        _isUrgent |= _requests.Any;
    }

    private void Start(bool repeats = false)
    {
        _startedAt = _context.Time.GetTimestamp();
        _running = _pages.BeginCheckpoint(CoverageOf, _bound(), repeats: _isForSpace || repeats);
        if (_running is not null)
        {
            _isUrgent = _isForSpace || _requests.Any;
            _backlog.Begin(_running.Etag);
            _context.Checkpoints.Post(_write);
            return;
        }
        if (_isForSpace)
            _recycling.Recycle(isForSpace: true);
        _isForSpace = false;
        _requests.AnswerCovered();
    }

    private CheckpointPosition CoverageOf(Etag etag)
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
        // Paced to end when a third of the journal bytes that trigger the next checkpoint have been written, or half of its runs, or a third of its pages have
        // changed: with half of the bytes, an open after a crash would take longer, and with half of the pages, memory would be short.
        var sinceBegin = Math.Max(2 * _backlog.RunsSinceBegin, 3 * Math.Max(_backlog.JournalSinceBegin, _backlog.ChangedSinceBegin));
        if (_isUrgent || _backlog.Behind > 0 || sinceBegin >= _running!.Progress)
        {
            _context.Checkpoints.Post(_write);
            return;
        }
        var rest = TimeSpan.FromSeconds((double)_context.Options.Pages.WriteBytes / _context.Options.CheckpointBytesPerSecond);
        _rest.Change(rest, Timeout.InfiniteTimeSpan);
    }

    private void Finish()
    {
        var checkpoint = _running!;
        var failure = _writeFailure;
        var isAbandoned = failure is StorageIoException { IsDiskFull: true } && checkpoint.MayBeAbandoned;
        // In steps, with the writer's other work between them.
        if ((failure is null && !_pages.FinishStep(checkpoint)) || (isAbandoned && !_pages.AbandonStep(checkpoint)))
        {
            _context.Writer.Post(_finish);
            return;
        }
        (_running, _writeFailure) = (null, null);
        if (isAbandoned)
            PutOff(failure!);
        else if (failure is StorageIoException { IsDiskFull: true })
            WaitForRoom(checkpoint, failure);
        else if (failure is not null)
            _life.Fail(failure);
        else
            Complete(checkpoint);
    }

    private void Complete(Checkpoint checkpoint)
    {
        BeginRelease();
        _context.Observer.CheckpointWritten(checkpoint.PageBytes, _context.Time.GetElapsedTime(_startedAt));
        IsDiskFull = false;
        var isForSpace = _isForSpace;
        _recycling.Recycle(isForSpace);
        _isForSpace = false;
        // Requests made meanwhile may need more than this checkpoint covers.
        _requests.AnswerCovered();
        if (_requests.Any)
            Start();
        _return.Start(isForSpace ? FreeMap.HolePagesMinAny : FreeMap.HolePagesMin);
        _quiescentReturn.CheckpointEnded();
        Ended();
    }

    /// <summary>Returns, in steps, what nobody holds any more. Called when that may have become more.</summary>
    public void BeginRelease()
    {
        if (_hasEnded || _isReleasing || !_pages.HasMoreToRelease)
            return;
        _isReleasing = true;
        _context.Writer.Post(_release);
    }

    /// <summary>Returns memory in steps, with the writer's other work between them.</summary>
    private void Release()
    {
        _isReleasing = false;
        _pages.ReleaseSome();
        BeginRelease();
        Released();
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
        _requests.Fail(failure);
        _foundNoRoom();
    }

    private void PutOff(Exception failure)
    {
        if (_reserve.Release())
        {
            Start();
            return;
        }
        // Makes room for the next attempt.
        _recycling.Recycle(isForSpace: true);
        IsDiskFull = true;
        _requests.Fail(failure);
        _foundNoRoom();
    }
}
