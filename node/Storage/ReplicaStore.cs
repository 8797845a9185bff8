using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// A replica of a shard on disk: its journal, trees, control file and the merged-transaction writer. Every member is called on the shard's writer executor
/// unless its comment says "any thread". Nothing here blocks, sleeps or starts a thread.
/// </summary>
/// <remarks>
/// Internal failures are not thrown. The first one is kept, all waiters are answered, <see cref="IStoreEvents.Failed"/> is called once, and from then on
/// members do nothing. Only <see cref="Create"/>, <see cref="Open"/> and reads throw. A <see cref="CorruptStoreException"/> means that the disk does not
/// hold what was written to it; the replica can be rebuilt from a peer.
/// </remarks>
internal sealed class ReplicaStore : IDisposable
{
    private readonly StoreContext _context;
    private readonly StoreLifecycle _life = new();
    private readonly PageStore _pages;
    private readonly JournalWriter _journal;
    private readonly RecordLog _log;
    private readonly ShardClock _shardClock;
    private readonly CommittedRecords _committed;
    private readonly GroupCommit _writes;
    private readonly CheckpointSchedule _checkpoints;
    private readonly SpaceWatch _space;
    private readonly Scrub _scrub;
    private readonly DigestAtRecord _digest;
    private readonly StoreShutdown _shutdown;
    private readonly bool _endedUncleanly;
    private IStoreEvents? _events;

    private ReplicaStore(StoreContext context, RecoveredStore recovered)
    {
        _context = context;
        _pages = recovered.Pages;
        Directory = recovered.Layout.Directory;
        _endedUncleanly = recovered.EndedUncleanly;
        // A reader may be the first to find damage. The reader gets an exception, and the replica stops as well.
        _pages.Space.Damaged = found => context.Writer.Post(new WorkAction(() => Fail(found)));
        var (index, reader) = (recovered.Index, new SegmentReader(context.Files, recovered.JournalDirectory));
        var reserve = new SpaceReserve(context.Files, recovered.Layout.Reserve, context.Options.ReserveBytes);
        _journal = new JournalWriter(
            context, recovered.JournalDirectory, recovered.Layout.Aside, recovered.Control, reserve, new WorkAction(OnJournalCompleted));
        _log = new RecordLog(context, index, reader, _journal, recovered.Control.State);
        _shardClock = new ShardClock(context.Time);
        _committed = new CommittedRecords(context, _pages, index, _log, _shardClock);
        // A checkpoint names nothing beyond what is durable here.
        _checkpoints = new CheckpointSchedule(
            context, _pages, index, reader, _journal, reserve, () => UInt128.Min(Published, Durable.Etag), Fail, () => _space!.Watch());
        _log.Grew = _checkpoints.JournalGrewBy;
        _space = new SpaceWatch(context, _life, _journal, reserve, _checkpoints, () => _writes!.Refuse(WriteOutcome.DiskFull));
        _writes = new GroupCommit(context, _life, _pages, _log, _checkpoints, _space, _shardClock, Fail);
        _scrub = new Scrub(context, _pages, Fail);
        _digest = new DigestAtRecord(context, _pages, _committed, Fail);
        _shutdown = new StoreShutdown(context, _life, Directory, _pages, reader, _journal, _checkpoints, End);
        Statistics = new StoreStatistics(_pages, index, _journal, _checkpoints, _scrub, context.Time);
    }

    /// <summary>The newest control state that is durable.</summary>
    public ControlState Control => _log.Control;

    /// <inheritdoc cref="RecordLog.Last"/>
    public RecordRef Last => _log.Last;

    /// <inheritdoc cref="RecordLog.Durable"/>
    public RecordRef Durable => _log.Durable;

    /// <summary>The etag of the state that readers see. Any thread.</summary>
    public UInt128 Published => _pages.PublishedEtag;

    /// <summary>The replica's directory. Any thread.</summary>
    public string Directory { get; }

    /// <summary>Whether this replica follows and has committed records left for <see cref="ApplyMore"/>.</summary>
    public bool IsApplying => _committed.AnyWaits && !_writes.IsLeading && !_life.HasEnded;

    /// <summary>Whether the queue is empty. Any thread.</summary>
    public bool QueueIsEmpty => _writes.QueueIsEmpty;

    /// <inheritdoc cref="GroupCommit.CanAppend"/>
    public bool CanAppendBatch => _writes.CanAppend;

    /// <summary>
    /// Whether a follower may pass in more bodies. False when the bodies that wait for a slow or full disk, or to be applied, have reached their bound. A
    /// body that is not passed in is treated like a lost frame: the leader sends it again.
    /// </summary>
    public bool CanAppendBodies => _log.HasRoom && _committed.BytesWaiting < _context.Options.WaitingBodyBytesMax;

    /// <inheritdoc cref="SpaceWatch.IsDiskFull"/>
    public bool IsDiskFull => _space.IsDiskFull;

    /// <summary>What stopped the engine; null while it works. Any thread.</summary>
    public Exception? Failure => _life.Failure;

    /// <summary>Sizes, counts and ages of this store.</summary>
    public StoreStatistics Statistics { get; }

    /// <summary>Creates a replica's directory atomically and opens it. The parent directory must exist, the directory must not. Any thread.</summary>
    public static ReplicaStore Create(StoreContext context, string directory, ControlState initial)
    {
        StoreDirectory.Create(context, directory, initial);
        return Open(context, directory);
    }

    /// <summary>
    /// Opens a replica's directory as <see cref="RecoveryTable"/> decides. Records up to the greater of the checkpoint's and the control file's committed
    /// etag are applied and published; later ones stay prepared. Any thread, before anything is posted to the executors.
    /// </summary>
    /// <inheritdoc cref="RecoveredStore.Open" path="/param|/exception"/>
    public static ReplicaStore Open(StoreContext context, string directory, bool mayRecover = false, StoreIdentity? expected = null)
    {
        var began = context.Time.GetTimestamp();
        var recovered = RecoveredStore.Open(context, directory, mayRecover, expected);
        var readTime = context.Time.GetElapsedTime(began);
        ReplicaStore? store = null;
        try
        {
            store = new ReplicaStore(context, recovered);
            began = context.Time.GetTimestamp();
            store._committed.Add(UInt128.Max(store._pages.Covered.Etag, store.Control.Committed));
            store._committed.ApplyAll();
            recovered.LogReplay(readTime, store.Published, context.Time.GetElapsedTime(began));
            store._shardClock.Reset(store._pages);
            recovered.StartSegment(store._journal);
            store._log.Control = recovered.Control.State;
            return store;
        }
        catch
        {
            // A store whose constructor failed does not own the files.
            (store ?? (IDisposable)recovered).Dispose();
            throw;
        }
    }

    /// <summary>Sets the owner. Called once, before any other use.</summary>
    public void Start(IStoreEvents events)
    {
        _events = events;
        _writes.Start(events);
        _checkpoints.CountUncovered();
        _space.Start();
        _scrub.Start(_endedUncleanly);
        if (_endedUncleanly)
            StoreLog.ScrubsAtOnce(_context.Log, Directory);
    }

    /// <summary>Writes a control state; <see cref="IStoreEvents.ControlWritten"/> reports when it is durable. Several writes may be in flight.</summary>
    public void WriteControl(ControlState state)
    {
        if (!_life.HasEnded)
            _log.WriteControl(state);
    }

    /// <summary>
    /// Changes from following to leading an epoch. The prepared tail is applied as one unpublished state, because a leader evaluates conditions on its
    /// whole journal. From here on a commit names a record of this epoch and covers all records before it.
    /// </summary>
    public void Lead(ulong epoch) => Guarded(() =>
    {
        Invariant.Check(!_writes.IsLeading && _pages.NewestEtag == Published, $"Lead({epoch}) was called while leading or with unpublished state.");
        Invariant.Check(epoch > Last.Epoch, $"Epoch {epoch} is not higher than that of the last record {Last}.");
        _committed.ApplyAll();
        _committed.ApplyPrepared();
        _writes.Lead(epoch);
    });

    /// <summary>Appends the epoch's first record, which has no operations and takes one change. The result has no body if the engine has stopped.</summary>
    public RecordRef AppendEpochOpen(DateTimeOffset wallTime)
    {
        var record = default(RecordRef);
        Guarded(() => record = _writes.AppendEpochOpen(wallTime));
        return record;
    }

    /// <inheritdoc cref="GroupCommit.TryAppendBatch"/>
    public bool TryAppendBatch(DateTimeOffset wallTime, out RecordRef record) => _writes.TryAppendBatch(wallTime, out record);

    /// <summary>
    /// Changes from leading to following. Unpublished states are dropped and their records become prepared. Requests already appended are answered
    /// <see cref="WriteOutcome.OutcomeUnknown"/>, queued ones and reads <see cref="WriteOutcome.NotLeader"/>.
    /// </summary>
    public void StopLeading() => Guarded(() =>
    {
        if (_writes.IsLeading)
            _writes.StopLeading();
    });

    /// <summary>Appends a record as a follower. False, with nothing changed, when the body is damaged or does not follow the last record.</summary>
    public bool Append(ReadOnlySpan<byte> body, out RecordRef record)
    {
        record = default;
        if (_life.HasEnded || !RecordBody.TryReadHeader(body, out var header) || !header.Follows(Last) || !RecordBody.Verify(body))
            return false;
        try
        {
            Invariant.Check(!_writes.IsLeading, $"The leader was given the record {header} to append, but it appends only its own records.");
            _log.Append(header, body.ToArray(), isOwn: false);
        }
        catch (Exception exception)
        {
            Fail(exception);
            return false;
        }
        record = header;
        return true;
    }

    /// <summary>
    /// Truncates the journal after a record, which must be in it and not before the published state. The truncated records are kept in the aside
    /// directory. <see cref="IStoreEvents.CutDone"/> reports when the new segment's header is durable. Appends may follow at once; they are written after
    /// that header.
    /// </summary>
    public void Cut(UInt128 lastKept) => Guarded(() =>
    {
        Invariant.Check(
            !_writes.IsLeading && lastKept >= Published && lastKept >= _committed.Last,
            $"Truncation to {lastKept} while leading, or below the committed {_committed.Last} or the published {Published}.");
        _log.Cut(lastKept);
    });

    /// <summary>
    /// Records that everything up to an etag is committed. A follower applies and publishes its prepared records up to it, at once if they are few,
    /// otherwise through <see cref="ApplyMore"/>. A leader publishes their states and answers their callers in etag order.
    /// </summary>
    public void Commit(UInt128 etag) => Guarded(() =>
    {
        if (_writes.IsLeading)
        {
            _pages.Publish(etag);
            _log.Settle(etag);
        }
        else
        {
            _committed.Add(etag);
            _committed.ApplyFew();
        }
        _writes.Answer();
        _checkpoints.StartIfDue();
    });

    /// <summary>
    /// Applies and publishes some of the committed records that wait, in steps, so that records which a follower receives meanwhile reach its journal and
    /// are acknowledged first. True while more wait.
    /// </summary>
    public bool ApplyMore()
    {
        if (!IsApplying)
            return false;
        Guarded(() =>
        {
            _committed.ApplyStep();
            _checkpoints.StartIfDue();
        });
        return IsApplying;
    }

    /// <inheritdoc cref="GroupCommit.HeldReadAnswers"/>
    public long HeldReadAnswers => _writes.HeldReadAnswers;

    /// <inheritdoc cref="GroupCommit.ReleaseReadAnswers"/>
    public void ReleaseReadAnswers(long heldReadAnswers) => _writes.ReleaseReadAnswers(heldReadAnswers);

    /// <inheritdoc cref="GroupCommit.TrySubmit"/>
    public bool TrySubmit(WriteRequest request) => _writes.TrySubmit(request);

    /// <summary>A snapshot of the published state. Any thread; the caller disposes it.</summary>
    /// <exception cref="StoreStoppedException">The engine has failed, or the store is closed.</exception>
    public ReadSnapshot OpenSnapshot()
    {
        // Open first and check afterwards: if a concurrent close does not see this snapshot, the check sees the close.
        var snapshot = _pages.OpenSnapshot();
        if (_shutdown.AdmitsReaders)
            return snapshot;
        snapshot.Dispose();
        throw new StoreStoppedException(Failure);
    }

    /// <inheritdoc cref="RecordLog.TryFind"/>
    public bool TryFind(UInt128 etag, out RecordRef record) => _log.TryFind(etag, out record);

    /// <inheritdoc cref="RecordLog.TryFindAtOrBefore"/>
    public bool TryFindAtOrBefore(UInt128 etag, out RecordRef record) => _log.TryFindAtOrBefore(etag, out record);

    /// <inheritdoc cref="RecordLog.ReadBodies"/>
    public int ReadBodies(UInt128 after, int bytesMax, List<ReadOnlyMemory<byte>> bodies)
    {
        if (_life.HasEnded)
            return -1;
        try
        {
            return _log.ReadBodies(after, _pages.Covered.Etag, bytesMax, bodies);
        }
        catch (Exception exception)
        {
            Fail(exception);
            return -1;
        }
    }

    /// <inheritdoc cref="CheckpointSchedule.RequestAsync"/>
    public Task<CheckpointPosition> CheckpointAsync() => _checkpoints.RequestAsync();

    /// <summary>
    /// Pins the newest checkpoint for a replica that is too far behind and receives it with <see cref="SnapshotInstaller"/>. The caller disposes it,
    /// before this store, when that replica continues from the journal or is gone.
    /// </summary>
    /// <exception cref="StoreStoppedException">The engine has stopped.</exception>
    public SnapshotSource OpenSnapshotSource() => _life.HasEnded ? throw new StoreStoppedException(Failure) : _checkpoints.OpenSource();

    /// <summary>
    /// Called when the data file is suspected to be damaged. All pages of its trees are read soon, including those already verified. A damaged page stops
    /// the engine.
    /// </summary>
    public void CheckPages()
    {
        if (!_life.HasEnded)
            _scrub.Hurry();
    }

    /// <inheritdoc cref="DigestAtRecord.Take"/>
    public void TakeDigest(UInt128 etag, Action<byte[]?> done) => Guarded(() =>
    {
        Invariant.Check(
            Published == etag || (IsApplying && Published < etag && etag <= _committed.Last),
            $"A digest of {etag} was requested, but {Published} is published and {_committed.Last} is committed.");
        _digest.Take(etag, done);
    });

    /// <inheritdoc cref="DigestAtRecord.Drop"/>
    public void DropDigest() => _digest.Drop();

    /// <summary>Whether the data file can be walked now: the store works, and no checkpoint is being written. For tests.</summary>
    public bool CanVerify => !_life.HasEnded && !_checkpoints.IsRunning;

    /// <summary>Walks the whole data file and throws if an invariant is violated. For tests.</summary>
    public void Verify() => _pages.Verify();

    /// <inheritdoc cref="StoreShutdown.Stop"/>
    public void Stop(Action quiet) => _shutdown.Stop(quiet);

    /// <summary>
    /// For a store opened from a received snapshot: takes over the checkpoint requests of the stopped store that it replaces. Called after
    /// <see cref="Start"/>.
    /// </summary>
    public void TakeOver(ReplicaStore before) => _checkpoints.TakeOver(before._checkpoints);

    /// <inheritdoc cref="CheckpointSchedule.EndRequests"/>
    public void EndRequests(Exception? reason = null) => _checkpoints.EndRequests(reason);

    /// <inheritdoc cref="StoreShutdown.CloseAsync"/>
    public Task CloseAsync() => _shutdown.CloseAsync();

    /// <summary>
    /// Answers all waiters and releases the files at once, as if the process had died. The executors must no longer run anything of this shard, and no
    /// snapshot may be open. Otherwise use <see cref="CloseAsync"/>, after which this does nothing.
    /// </summary>
    public void Dispose()
    {
        if (_life.IsStopped)
        {
            _checkpoints.EndRequests();
            return;
        }
        _digest.Release();
        _shutdown.CloseNow();
    }

    private void OnJournalCompleted()
    {
        _journal.AcknowledgeReport();
        if (_life.HasEnded)
            return;
        var couldAppend = CanAppendBatch;
        _log.Report(_events!);
        if (_journal.Failure is { } failure)
            Fail(failure);
        else if (!couldAppend)
            _writes.TellWork();
        _checkpoints.StartIfDue();
        _space.Watch();
    }

    private void Guarded(Action action)
    {
        if (_life.HasEnded)
            return;
        try
        {
            action();
        }
        catch (Exception exception)
        {
            Fail(exception);
        }
    }

    private void Fail(Exception exception)
    {
        if (!_life.TryFail(exception))
            return;
        EndWork(WriteOutcome.OutcomeUnknown);
        _checkpoints.Fail(exception);
        // Posted, because the owner may be in the middle of a call into this store.
        _context.Writer.Post(new WorkAction(() => _events?.Failed(exception)));
    }

    private void End()
    {
        EndWork(WriteOutcome.Stopped);
        _checkpoints.Stop();
    }

    private void EndWork(WriteOutcome reads)
    {
        _space.Dispose();
        _writes.End(reads);
        _scrub.Dispose();
        _digest.Drop();
    }
}
