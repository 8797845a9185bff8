using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Snapshots;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

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
    private const int ApplyBytesMax = 1 << 20;

    /// <summary>If every page has to be read from disk, this is on the order of a hundred pages.</summary>
    private const int ApplyBytesLeast = 16 << 10;

    /// <summary>
    /// One step applies at least this fraction of what waits, so a follower that receives records faster than it applies them reaches a balance.
    /// </summary>
    private const int ApplyStepsMax = 16;

    /// <summary>The longest pause after a batch. Ten batches of up to 1 MiB a second are less than any disk can write.</summary>
    private static readonly TimeSpan HoldMax = TimeSpan.FromMilliseconds(100);
    private static readonly TimeSpan SpaceInterval = TimeSpan.FromSeconds(1);
    private static readonly TimeSpan SnapshotGrace = TimeSpan.FromSeconds(10);
    private static readonly TimeSpan ClosePoll = TimeSpan.FromMilliseconds(20);
    private readonly StoreContext _context;
    private readonly PageStore _pages;
    private readonly JournalIndex _index;
    private readonly JournalWriter _journal;
    private readonly SegmentReader _reader;
    private readonly RequestQueue _queue;
    private readonly AnswerChain _chain;
    private readonly PendingAnswers _answers;
    private readonly MergedTransaction _transaction;
    private readonly CheckpointSchedule _checkpoints;
    private readonly Scrub _scrub;
    private BackgroundDigest? _digest;
    private (UInt128 Etag, Action<byte[]?> Done)? _digestAwaited;
    private readonly WorkAction _failureNotice;
    private readonly WorkAction _lookForSpace;
    private readonly WorkAction _goOn;
    private readonly SpaceReserve _reserve;
    private readonly TaskCompletionSource _closed = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private IStoreEvents? _events;
    private volatile Exception? _failure;
    private volatile bool _isStopping;
    private volatile bool _isStopped;
    private volatile bool _isClosing;
    private readonly bool _endedUncleanly;
    private bool _isQuiet;
    private long? _readersAwaitedSince;
    private ITimer? _closeTimer;
    private bool _isLeading;
    private ulong _epoch;
    private readonly ShardClock _shardClock;
    private ITimer? _spaceTimer;
    private ITimer? _holdTimer;
    private bool _isHeldBack;
    private long _recordBytesInFlight;

    /// <summary>Etags of the records of the current epoch that are neither durable here nor committed, oldest first.</summary>
    private readonly Queue<UInt128> _unsettled = new();
    private UInt128 _committed;
    private long _committedBytesWaiting;
    private int _applyBytes = ApplyBytesMax;

    private ReplicaStore(StoreContext context, RecoveredStore recovered)
    {
        _context = context;
        _pages = recovered.Pages;
        _index = recovered.Index;
        _reader = new SegmentReader(context.Files, recovered.JournalDirectory);
        Directory = recovered.Layout.Directory;
        Control = recovered.Control.State;
        Durable = _index.Last;
        _failureNotice = new WorkAction(() => _events?.Failed(_failure!));
        _lookForSpace = new WorkAction(LookForSpace);
        _goOn = new WorkAction(GoOnAppending);
        // A reader may be the first to find damage. The reader gets an exception, and the replica stops as well.
        _pages.Space.Damaged = found => _context.Writer.Post(new WorkAction(() => Fail(found)));
        _chain = new AnswerChain(context.Completions);
        _answers = new PendingAnswers(_chain);
        _queue = new RequestQueue(context.Options.QueueCountMax, context.Options.QueueBytesMax, context.Writer, new WorkAction(OnQueueNotice));
        _shardClock = new ShardClock(context.Time);
        _transaction = new MergedTransaction(_queue, _chain, _answers, context.Time, context.Options);
        _reserve = new SpaceReserve(context.Files, recovered.Layout.Reserve, context.Options.ReserveBytes);
        _journal = new JournalWriter(
            context, recovered.JournalDirectory, recovered.Layout.Aside, recovered.Control, _reserve, new WorkAction(OnJournalCompleted));
        _checkpoints = new CheckpointSchedule(context, _pages, _index, _reader, _journal, _reserve, CheckpointBound, Fail, WatchSpace);
        _scrub = new Scrub(context, _pages, Fail);
        Statistics = new StoreStatistics(_pages, _index, _journal, _checkpoints, _scrub, context.Time);
        _endedUncleanly = recovered.EndedUncleanly;
    }

    /// <summary>The newest control state that is durable.</summary>
    public ControlState Control { get; private set; }

    /// <summary>The newest record, durable or not.</summary>
    public RecordRef Last => _index.Last;

    /// <summary>The end of the longest prefix of records whose writes have completed.</summary>
    public RecordRef Durable { get; private set; }

    /// <summary>The etag of the state that readers see. Any thread.</summary>
    public UInt128 Published => _pages.PublishedEtag;

    /// <summary>The replica's directory. Any thread.</summary>
    public string Directory { get; }

    /// <summary>Whether this replica follows and has committed records left for <see cref="ApplyMore"/>.</summary>
    public bool IsApplying => _committed > Published && !_isLeading && !HasEnded;

    /// <summary>Whether the queue is empty. Any thread.</summary>
    public bool QueueIsEmpty => _queue.IsEmpty;

    /// <summary>
    /// Whether the leader may append another batch. False while as many records as the journal has lanes are neither durable here nor committed; further
    /// requests gather for the next batch meanwhile. A record that a majority without this replica has does not count, so a slow local disk delays
    /// nothing until the records waiting for it exceed the memory bound. When checkpoints fall behind, each batch is also followed by a pause that grows
    /// with the lag, so that writers slow down gradually and are not stopped.
    /// </summary>
    public bool CanAppendBatch =>
        _isLeading && !HasEnded && !_isHeldBack && _unsettled.Count < _context.JournalLanes.Count && _recordBytesInFlight < _context.Options.WaitingBodyBytesMax;

    /// <summary>
    /// Whether a follower may pass in more bodies. False when the bodies that wait for a slow or full disk, or to be applied, have reached their bound. A
    /// body that is not passed in is treated like a lost frame: the leader sends it again.
    /// </summary>
    public bool CanAppendBodies => _recordBytesInFlight < _context.Options.WaitingBodyBytesMax && _committedBytesWaiting < _context.Options.WaitingBodyBytesMax;

    /// <summary>
    /// Whether there is no space for a segment or a checkpoint. Puts are then refused and a follower's records wait. Space is looked for once a second.
    /// Any thread.
    /// </summary>
    public bool IsDiskFull => _journal.IsDiskFull || _checkpoints.IsDiskFull;

    /// <summary>What stopped the engine; null while it works. Any thread.</summary>
    public Exception? Failure => _failure;

    /// <summary>Sizes, counts and ages of this store.</summary>
    public StoreStatistics Statistics { get; }

    private bool HasEnded => _failure is not null || _isStopping;

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
    /// <param name="context">The executors, disk and options that the store uses.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="mayRecover">
    /// The replica has peers. If its checkpoint is intact but records after it are lost, it opens with what is left, and <see cref="Control"/> names an
    /// acknowledged etag beyond <see cref="Last"/>. Then it must not vote, acknowledge or lead until it again has everything that is committed.
    /// </param>
    /// <param name="expected">The replica that the directory must belong to; null accepts any.</param>
    /// <exception cref="RecoveryRefusedException">
    /// Something that was durable is, or may be, missing, and recovery is not allowed. Nothing was changed.
    /// </exception>
    /// <exception cref="ForeignStoreException">The directory belongs to another replica. Nothing was changed.</exception>
    /// <exception cref="FormatVersionException">The directory has another format version.</exception>
    public static ReplicaStore Open(StoreContext context, string directory, bool mayRecover = false, StoreIdentity? expected = null)
    {
        var began = context.Time.GetTimestamp();
        var recovered = RecoveredStore.Open(context, directory, mayRecover, expected);
        var readTime = context.Time.GetElapsedTime(began);
        var store = Use(context, recovered);
        try
        {
            began = context.Time.GetTimestamp();
            store.NoteCommitted(UInt128.Max(store._pages.Covered.Etag, store.Control.Committed));
            store.ApplyCommitted();
            recovered.LogReplay(readTime, store.Published, context.Time.GetElapsedTime(began));
            store.ReadShardTime();
            recovered.StartSegment(store._journal);
            store.Control = recovered.Control.State;
            return store;
        }
        catch
        {
            store.Dispose();
            throw;
        }
    }

    private static ReplicaStore Use(StoreContext context, RecoveredStore recovered)
    {
        try
        {
            return new ReplicaStore(context, recovered);
        }
        catch
        {
            // The constructor did not take ownership.
            recovered.Dispose();
            throw;
        }
    }

    /// <summary>Sets the owner. Called once, before any other use.</summary>
    public void Start(IStoreEvents events)
    {
        _events = events;
        _checkpoints.CountUncovered();
        // The reserve was released earlier or never complete, or opening found the disk full and continued without it.
        if (!_reserve.IsHeld || IsDiskFull)
            _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
        _scrub.Start(_endedUncleanly);
        if (_endedUncleanly)
            StoreLog.ScrubsAtOnce(_context.Log, Directory);
    }

    /// <summary>Writes a control state; <see cref="IStoreEvents.ControlWritten"/> reports when it is durable. Several writes may be in flight.</summary>
    public void WriteControl(ControlState state)
    {
        if (!HasEnded)
            _journal.Enqueue(new JournalJob(JournalJobKind.Control) { Control = state });
    }

    /// <summary>
    /// Changes from following to leading an epoch. The prepared tail is applied as one unpublished state, because a leader evaluates conditions on its
    /// whole journal. From here on a commit names a record of this epoch and covers all records before it.
    /// </summary>
    public void Lead(ulong epoch) => Guarded(() =>
    {
        Invariant.Check(!_isLeading && _pages.NewestEtag == Published, $"Lead({epoch}) was called while leading or with unpublished state.");
        Invariant.Check(epoch > Last.Epoch, $"Epoch {epoch} is not higher than that of the last record {Last}.");
        ApplyCommitted();
        // One state is enough, since none of these records is committed before the epoch's first record. One state per record would copy each page again
        // and again.
        if (_index.FirstAfter(Published) is var first && first < _index.Count)
            ApplyAndSeal(first, _index.Count);
        (_isLeading, _epoch) = (true, epoch);
    });

    /// <summary>Appends the epoch's first record, which has no operations and takes one change. The result has no body if the engine has stopped.</summary>
    public RecordRef AppendEpochOpen(DateTimeOffset wallTime)
    {
        var record = default(RecordRef);
        Guarded(() =>
        {
            Invariant.Check(_isLeading && Last.Epoch < _epoch, $"Epoch {_epoch} is already open, or this replica does not lead.");
            _shardClock.Open(wallTime);
            var published = _index.Find(Published)?.Record ?? _index.Base;
            record = SealAndAppend(_pages.Begin(), _context.Rules.PrecedesEpoch(Last, published), RecordFlags.EpochOpen, 0, []);
        });
        return record;
    }

    /// <summary>
    /// Drains the queue into one merged transaction, applies it as an unpublished state and passes its record to the journal. False when there is no
    /// record: nothing was queued, all requests failed, or the engine has stopped.
    /// </summary>
    public bool TryAppendBatch(DateTimeOffset wallTime, out RecordRef record)
    {
        record = default;
        if (!CanAppendBatch || _queue.IsEmpty)
            return false;
        try
        {
            Invariant.Check(Last.Epoch == _epoch, $"Epoch {_epoch} is not open.");
            var batch = _pages.Begin();
            var bytesMax = _unsettled.Count == 0 ? _context.Options.BatchBytes : _context.Options.BatchBytesUnderLoad;
            _shardClock.Step(wallTime);
            _transaction.Collect(batch, Last.Etag, new UInt128(_epoch, Last.Change + 1), _shardClock.Microseconds, bytesMax, BytesLeftOnFullDisk());
            if (_transaction.OperationCount > 0)
                record = SealAndAppend(batch, Last, RecordFlags.None, _transaction.OperationCount, _transaction.Payload, _transaction);
            else if (_transaction.Payload.Length > 0)
                record = SealAndAppend(batch, Last, RecordFlags.ResultOnly, 0, _transaction.Payload, _transaction);
            else
                _pages.Abort(batch);
        }
        catch (Exception exception)
        {
            Fail(exception);
            return false;
        }
        _answers.Publish(Published, _events!);
        HoldBackIfBehind();
        if (!_queue.IsEmpty && CanAppendBatch)
            _queue.Notify();
        return record.BodyBytes > 0;
    }

    /// <summary>
    /// Changes from leading to following. Unpublished states are dropped and their records become prepared. Requests already appended are answered
    /// <see cref="WriteOutcome.OutcomeUnknown"/>, queued ones and reads <see cref="WriteOutcome.NotLeader"/>.
    /// </summary>
    public void StopLeading() => Guarded(() =>
    {
        if (!_isLeading)
            return;
        _isLeading = false;
        _unsettled.Clear();
        _pages.DropUnpublished();
        ReadShardTime();
        _answers.End(WriteOutcome.OutcomeUnknown, WriteOutcome.NotLeader);
        AnswerQueued(WriteOutcome.NotLeader);
    });

    /// <summary>Appends a record as a follower. False, with nothing changed, when the body is damaged or does not follow the last record.</summary>
    public bool Append(ReadOnlySpan<byte> body, out RecordRef record)
    {
        record = default;
        if (HasEnded || !RecordBody.TryReadHeader(body, out var header) || !header.Follows(Last) || !RecordBody.Verify(body))
            return false;
        try
        {
            Invariant.Check(!_isLeading, $"The leader was given the record {header} to append, but it appends only its own records.");
            AppendToJournal(header, body.ToArray());
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
            !_isLeading && lastKept >= Published && lastKept >= _committed, $"Truncation to {lastKept} while leading, or below the committed {_committed} or the published {Published}.");
        var kept = _index.Find(lastKept);
        var last = kept?.Record ?? _index.Base;
        Invariant.Check(last.Etag == lastKept, $"Truncation to {lastKept}, which is not in the journal.");
        var tail = _index.RemoveFrom(_index.FirstAfter(lastKept));
        foreach (var entry in tail)
            entry.IsCut = true;
        if (Durable.Etag > lastKept)
            Durable = last;
        _reader.Close();
        _journal.Enqueue(new JournalJob(JournalJobKind.Cut) { Entry = kept, Last = last, Tail = tail });
    });

    /// <summary>
    /// Records that everything up to an etag is committed. A follower applies and publishes its prepared records up to it, at once if they are few,
    /// otherwise through <see cref="ApplyMore"/>. A leader publishes their states and answers their callers in etag order.
    /// </summary>
    public void Commit(UInt128 etag) => Guarded(() =>
    {
        if (_isLeading)
        {
            _pages.Publish(etag);
            Settled(etag);
        }
        else
        {
            NoteCommitted(etag);
            if (_committedBytesWaiting <= ApplyBytesMax)
                ApplyStep(long.MaxValue, _context.Options.StepTimeMax);
        }
        if (_events is { } events)
            _answers.Publish(Published, events);
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
            ApplyStep(Math.Max(ApplyBytesMax, _committedBytesWaiting / ApplyStepsMax), _context.Options.StepTimeMax);
            _checkpoints.StartIfDue();
        });
        return IsApplying;
    }

    /// <summary>How many read answers have been held so far, including those released since. Writer executor.</summary>
    public long HeldReadAnswers => _answers.HeldCount;

    /// <summary>Releases held read answers after the owner's leadership was confirmed.</summary>
    /// <param name="heldReadAnswers">
    /// The value of <see cref="HeldReadAnswers"/> when the confirmation was requested. Answers held after that wait for another one.
    /// </param>
    public void ReleaseReadAnswers(long heldReadAnswers) => _answers.ReleaseReads(heldReadAnswers);

    /// <summary>
    /// Queues a request. Returns false at once when the queue is full; the request then still belongs to the caller. A store that does not lead or has
    /// stopped answers with that outcome. Any thread.
    /// </summary>
    public bool TrySubmit(WriteRequest request)
    {
        request.Complete();
        if (!_queue.TryAdd(request))
            return false;
        // After disposal nobody runs the notice.
        if (_isStopped)
            AnswerQueued(WriteOutcome.Stopped, new AnswerChain(_context.Completions));
        return true;
    }

    /// <summary>A snapshot of the published state. Any thread; the caller disposes it.</summary>
    /// <exception cref="StoreStoppedException">The engine has failed, or the store is closed.</exception>
    public ReadSnapshot OpenSnapshot()
    {
        // Open first and check afterwards: if a concurrent close does not see this snapshot, the check sees the close.
        var snapshot = _pages.OpenSnapshot();
        if (_failure is null && !_isClosing)
            return snapshot;
        snapshot.Dispose();
        throw new StoreStoppedException(_failure);
    }

    /// <summary>Finds the record with this etag, if it is in a live segment or directly before the oldest one.</summary>
    public bool TryFind(UInt128 etag, out RecordRef record)
    {
        record = _index.Find(etag)?.Record ?? _index.Base;
        return record.Etag == etag;
    }

    /// <summary>Finds the newest record that is not after this etag, if the live segments reach back so far.</summary>
    public bool TryFindAtOrBefore(UInt128 etag, out RecordRef record)
    {
        var next = _index.FirstAfter(etag);
        record = next > 0 ? _index[next - 1].Record : _index.Base;
        return record.Etag <= etag;
    }

    /// <summary>
    /// Adds the bodies that follow a record, in order, up to <paramref name="bytesMax"/> bytes and at least one if there is any. The newest come from
    /// memory, older ones from their segments. Returns their count, or -1 when the live segments do not reach back so far. The memory stays valid and
    /// unchanged.
    /// </summary>
    public int ReadBodies(UInt128 after, int bytesMax, List<ReadOnlyMemory<byte>> bodies)
    {
        if (HasEnded || after < _index.Base.Etag)
            return -1;
        var count = 0;
        try
        {
            var bytes = 0L;
            for (var index = _index.FirstAfter(after); index < _index.Count && (count == 0 || bytes + _index[index].Record.BodyBytes <= bytesMax); index++)
            {
                var entry = _index[index];
                try
                {
                    bodies.Add(BodyOf(entry));
                }
                catch (CorruptStoreException damage) when (entry.Record.Etag <= _pages.Covered.Etag)
                {
                    // A checkpoint covers the record, so only lagging followers need it. They get a snapshot instead.
                    _index.RemoveOldest(index + 1);
                    StoreLog.CoveredJournalDamaged(_context.Log, damage.Message);
                    return count == 0 ? -1 : count;
                }
                bytes += entry.Record.BodyBytes;
                count++;
            }
        }
        catch (Exception exception)
        {
            Fail(exception);
            return -1;
        }
        return count;
    }

    /// <summary>
    /// Writes a checkpoint of at least the state that is published when the writer takes the request, and returns what it covers. It waits for published
    /// records that are not durable here yet, as on a follower with a slow disk. It fails with the store, or when the disk is full. If <see cref="Stop"/>
    /// comes first, the request waits for the store that replaces this one. Any thread.
    /// </summary>
    public Task<CheckpointPosition> CheckpointAsync() => _checkpoints.RequestAsync();

    /// <summary>
    /// Pins the newest checkpoint for a replica that is too far behind and receives it with <see cref="SnapshotInstaller"/>. The caller disposes it,
    /// before this store, when that replica continues from the journal or is gone.
    /// </summary>
    /// <exception cref="StoreStoppedException">The engine has stopped.</exception>
    public SnapshotSource OpenSnapshotSource() => HasEnded ? throw new StoreStoppedException(_failure) : _checkpoints.OpenSource();

    /// <summary>
    /// Called when the data file is suspected to be damaged. All pages of its trees are read soon, including those already verified. A damaged page stops
    /// the engine.
    /// </summary>
    public void CheckPages()
    {
        if (!HasEnded)
            _scrub.Hurry();
    }

    /// <summary>
    /// Computes, in the background, the digest of the state that has exactly the records up to a committed etag that has not been passed yet. An earlier
    /// digest still under way is dropped. Calls back on the writer executor, unless the store has stopped or <see cref="DropDigest"/> was called first.
    /// </summary>
    /// <param name="etag">A committed etag; it may still wait to be applied.</param>
    /// <param name="done">Receives the digest, or null if there is none because too much was written meanwhile or too many snapshots are open.</param>
    public void TakeDigest(UInt128 etag, Action<byte[]?> done) => Guarded(() =>
    {
        Invariant.Check(
            Published == etag || (IsApplying && Published < etag && etag <= _committed), $"A digest of {etag} was requested, but {Published} is published and {_committed} is committed.");
        DropDigest();
        _digestAwaited = (etag, done);
        BeginDigestIfReached();
    });

    /// <summary>Drops the digest that is under way, if any.</summary>
    public void DropDigest()
    {
        _digest?.Dispose();
        _digest = null;
        _digestAwaited = null;
    }

    /// <summary>Walks the whole data file and throws if an invariant is violated. For tests.</summary>
    public void Verify() => _pages.Verify();

    /// <summary>
    /// Stops the store except for its readers, while its executors keep running. All waiters are answered and everything queued in the journal is written.
    /// Called once, before <see cref="CloseAsync"/>. Writer executor; no event follows.
    /// </summary>
    /// <param name="quiet">Called on the writer executor when this store no longer changes anything in its directory.</param>
    public void Stop(Action quiet)
    {
        Invariant.Check(!_isStopping, $"'{Directory}' was stopped twice.");
        _isStopping = true;
        _context.Writer.Post(new WorkAction(() => BeginStop(quiet)));
    }

    /// <summary>
    /// For a store opened from a received snapshot: takes over the checkpoint requests of the stopped store that it replaces. Called after
    /// <see cref="Start"/>.
    /// </summary>
    public void TakeOver(ReplicaStore before) => _checkpoints.TakeOver(before._checkpoints);

    /// <summary>
    /// Fails all pending and later checkpoint requests of a stopped store that no other store replaces, or none until there is disk space. Writer
    /// executor.
    /// </summary>
    /// <param name="reason">The exception they get; null says that the store has stopped.</param>
    public void EndRequests(Exception? reason = null) => _checkpoints.EndRequests(reason);

    /// <summary>
    /// Stops the store, if it is not stopped, and then its readers. No new reader is admitted, the existing ones may continue for ten seconds, then the
    /// data file is released. Any thread; when called on the writer executor, no event follows.
    /// </summary>
    public Task CloseAsync()
    {
        _isClosing = true;
        _isStopping = true;
        _context.Writer.Post(new WorkAction(BeginClose));
        return _closed.Task;
    }

    /// <summary>
    /// Answers all waiters and releases the files at once, as if the process had died. The executors must no longer run anything of this shard, and no
    /// snapshot may be open. Otherwise use <see cref="CloseAsync"/>, after which this does nothing.
    /// </summary>
    public void Dispose()
    {
        if (_isStopped)
        {
            _checkpoints.EndRequests();
            return;
        }
        _isClosing = true;
        var digest = _digest;
        End();
        _checkpoints.EndRequests();
        digest?.Release();
        ReleaseJournal();
        _pages.Dispose();
    }

    private void End()
    {
        _isStopping = true;
        _isStopped = true;
        _isLeading = false;
        _spaceTimer?.Dispose();
        _holdTimer?.Dispose();
        _answers.End(WriteOutcome.OutcomeUnknown, WriteOutcome.Stopped);
        AnswerQueued(WriteOutcome.Stopped);
        _checkpoints.Stop();
        _scrub.Dispose();
        DropDigest();
    }

    private void BeginClose()
    {
        BeginStop(quiet: null);
        _checkpoints.EndRequests();
        AwaitReaders();
    }

    private void BeginStop(Action? quiet)
    {
        if (_isStopped)
            return;
        End();
        // Queued after everything that the journal and the checkpoint executor still have of this store.
        var becameQuiet = new WorkAction(() =>
        {
            ReleaseJournal();
            _isQuiet = true;
            quiet?.Invoke();
            AwaitReaders();
        });
        var passCheckpoints = new WorkAction(() =>
        {
            RemoveMark();
            _context.Writer.Post(becameQuiet);
        });
        _journal.Stop(() => _context.Checkpoints.Post(passCheckpoints));
    }

    /// <summary>
    /// Removes the mark of an open directory, which was closed cleanly. After a failure the mark stays, so that the next open checks everything.
    /// </summary>
    private void RemoveMark()
    {
        if (_failure is not null)
            return;
        try
        {
            _context.Files.Delete(new StoreLayout(Directory).Running);
        }
        catch (StorageIoException failure)
        {
            StoreLog.StaysMarked(_context.Log, Directory, failure.Message);
        }
    }

    private void AwaitReaders()
    {
        if (!_isQuiet || !_isClosing || _closed.Task.IsCompleted)
            return;
        _readersAwaitedSince ??= _context.Time.GetTimestamp();
        var hasReaders = _pages.HasReaders;
        if (hasReaders && _context.Time.GetElapsedTime(_readersAwaitedSince.Value) < SnapshotGrace)
        {
            _closeTimer ??= _context.Time.CreateTimer(_ => _context.Writer.Post(new WorkAction(AwaitReaders)), null, ClosePoll, ClosePoll);
            return;
        }
        _closeTimer?.Dispose();
        // Unmapping under a reader would crash the process, so the mapping is left to the readers and finally to the finalizer.
        if (!hasReaders)
            _pages.Dispose();
        _closed.SetResult();
    }

    private void ReleaseJournal()
    {
        _journal.Dispose();
        _reader.Dispose();
    }

    // The next batch may follow when either this disk or a majority without it has the record.
    private void Settled(UInt128 etag)
    {
        while (_unsettled.TryPeek(out var first) && first <= etag)
            _unsettled.Dequeue();
    }

    private UInt128 CheckpointBound() => UInt128.Min(Published, Durable.Etag);

    private void ReadShardTime()
    {
        using var snapshot = _pages.OpenSnapshot();
        _shardClock.Reset(RecordApplier.ShardTime(snapshot));
    }

    private void OnQueueNotice()
    {
        _queue.AcknowledgeNotice();
        if (HasEnded)
            AnswerQueued(WriteOutcome.Stopped);
        else if (!_isLeading)
            AnswerQueued(WriteOutcome.NotLeader);
        else if (_journal.IsStalled)
            AnswerQueued(WriteOutcome.DiskFull);
        else
            _events!.WorkQueued();
    }

    private void OnJournalCompleted()
    {
        _journal.AcknowledgeReport();
        if (HasEnded)
            return;
        var hadSlot = CanAppendBatch;
        JournalEntry? durable = null;
        while (_journal.TryTakeCompleted(out var job))
        {
            if (job.Kind == JournalJobKind.Record)
            {
                _recordBytesInFlight -= RecordEnvelope.RecordBytes(job.Entry!.Record.BodyBytes);
                job.Entry.IsDurable = true;
                durable = job.Entry.IsCut ? durable : job.Entry;
                continue;
            }
            TellDurable(durable);
            durable = null;
            if (job.Kind == JournalJobKind.Control)
            {
                Control = job.Control!;
                _events!.ControlWritten(Control);
            }
            else if (job.Kind == JournalJobKind.Cut)
            {
                _events!.CutDone(job.Last);
            }
        }
        TellDurable(durable);
        if (_journal.Failure is { } failure)
            Fail(failure);
        else if (!hadSlot && CanAppendBatch && !_queue.IsEmpty)
            _events!.WorkQueued();
        _checkpoints.StartIfDue();
        WatchSpace();
    }

    private void TellDurable(JournalEntry? entry)
    {
        // An event handler may have truncated it in between.
        if (entry is null || entry.IsCut)
            return;
        Durable = entry.Record;
        Settled(Durable.Etag);
        _index.DropOldBodies();
        _events!.Durable(Durable);
    }

    /// <summary>Marks the records up to an etag, as far as they are in the journal, as ready to be applied.</summary>
    private void NoteCommitted(UInt128 etag)
    {
        for (var index = _index.FirstAfter(UInt128.Max(Published, _committed)); index < _index.Count && _index[index].Record.Etag <= etag; index++)
        {
            _committed = _index[index].Record.Etag;
            _committedBytesWaiting += _index[index].Record.BodyBytes;
        }
    }

    private void ApplyCommitted() => ApplyStep(long.MaxValue, Timeout.InfiniteTimeSpan);

    /// <summary>
    /// Applies up to <paramref name="bytesMax"/> bytes of committed records, at least one record if there is any, in states of bounded size. Begins no
    /// further state once <paramref name="timeMax"/> has passed.
    /// </summary>
    private void ApplyStep(long bytesMax, TimeSpan timeMax)
    {
        var left = bytesMax;
        var isTimed = timeMax != Timeout.InfiniteTimeSpan;
        var began = _context.Time.GetTimestamp();
        for (var first = _index.FirstAfter(Published); left > 0 && first < _index.Count && _index[first].Record.Etag <= _committed;)
        {
            var bytes = 0L;
            var end = first;
            // A digest needs a state that ends exactly at the requested etag.
            var last = _digestAwaited?.Etag ?? _committed;
            while (end < _index.Count && _index[end].Record.Etag <= _committed
                && (end == first || (_index[end].Record.Etag <= last && bytes + _index[end].Record.BodyBytes <= Math.Min(left, isTimed ? _applyBytes : ApplyBytesMax))))
                bytes += _index[end++].Record.BodyBytes;
            var stateBegan = _context.Time.GetTimestamp();
            ApplyAndSeal(first, end);
            // A state cannot be abandoned halfway, so the size of the next one is doubled or halved by how long this one took.
            _applyBytes = _context.Time.GetElapsedTime(stateBegan) > _context.Options.StepTimeMax ? Math.Max(ApplyBytesLeast, _applyBytes / 2) : Math.Min(ApplyBytesMax, _applyBytes * 2);
            _pages.Publish(_index[end - 1].Record.Etag);
            _committedBytesWaiting -= bytes;
            left -= bytes;
            first = end;
            BeginDigestIfReached();
            if (isTimed && _context.Time.GetElapsedTime(began) >= timeMax)
                return;
        }
    }

    private void BeginDigestIfReached()
    {
        if (_digestAwaited is not { } awaited || awaited.Etag != Published)
            return;
        _digestAwaited = null;
        try
        {
            _digest = new BackgroundDigest(_context, _pages, digest =>
            {
                DropDigest();
                awaited.Done(digest);
            }, Fail);
        }
        catch (SnapshotLimitException)
        {
            // Readers take precedence over digests.
            awaited.Done(null);
        }
    }

    /// <summary>Applies entries as one state, which gets the etag of the last one.</summary>
    private void ApplyAndSeal(int first, int end)
    {
        var batch = _pages.Begin();
        try
        {
            for (var index = first; index < end; index++)
            {
                if (_context.Unreadable(_index[index].Record) is { } why)
                    throw new UnreadableRecordException(why);
                var body = BodyOf(_index[index]);
                RecordApplier.Apply(batch, body);
                _shardClock.Saw(RecordBody.WallTimeMicroseconds(body));
            }
        }
        catch
        {
            _pages.Abort(batch);
            throw;
        }
        _pages.Seal(batch, _index[end - 1].Record.Etag);
    }

    /// <summary>Shard time never decreases.</summary>
    private RecordRef SealAndAppend(WriteBatch batch, in RecordRef previous, RecordFlags flags, int operationCount, ReadOnlySpan<byte> payload, MergedTransaction? merged = null)
    {
        var body = RecordBody.Encode(previous, flags, _epoch, operationCount, _shardClock.Microseconds, payload);
        RecordApplier.SetShardTime(batch, _shardClock.Microseconds);
        _ = RecordBody.TryReadHeader(body, out var record);
        _pages.Seal(batch, record.Etag);
        // Before a journal lane can complete the record.
        if (merged is not null && _context.Observer.IsWatching)
            _context.Observer.Appended(record, operationCount, merged.Waited, merged.Traces);
        AppendToJournal(record, body);
        return record;
    }

    private void AppendToJournal(in RecordRef record, byte[] body)
    {
        var entry = new JournalEntry(record, body);
        _index.Append(entry);
        if (_isLeading)
            _unsettled.Enqueue(record.Etag);
        _recordBytesInFlight += RecordEnvelope.RecordBytes(body.Length);
        _checkpoints.JournalGrewBy(RecordEnvelope.RecordBytes(body.Length));
        _journal.Enqueue(new JournalJob(JournalJobKind.Record) { Entry = entry, UsesReserve = _isLeading });
    }

    private byte[] BodyOf(JournalEntry entry) => entry.Body ?? _reader.ReadBody(entry);

    private void HoldBackIfBehind()
    {
        var behind = _checkpoints.Behind;
        if (behind <= 0)
            return;
        _isHeldBack = true;
        _holdTimer ??= _context.Time.CreateTimer(_ => _context.Writer.Post(_goOn), null, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _holdTimer.Change(behind * HoldMax, Timeout.InfiniteTimeSpan);
    }

    private void GoOnAppending()
    {
        if (!_isHeldBack)
            return;
        _isHeldBack = false;
        if (CanAppendBatch && !_queue.IsEmpty)
            _events!.WorkQueued();
    }

    /// <summary>Null while there is space.</summary>
    private long? BytesLeftOnFullDisk() => IsDiskFull ? _journal.BytesLeft - _recordBytesInFlight : null;

    /// <summary>While the disk is full, looks for space at intervals.</summary>
    private void WatchSpace()
    {
        if (HasEnded || _spaceTimer is not null || !IsDiskFull)
            return;
        if (_journal.IsStalled)
            AnswerQueued(WriteOutcome.DiskFull);
        _spaceTimer = _context.Time.CreateTimer(_ => _context.Writer.Post(_lookForSpace), null, SpaceInterval, Timeout.InfiniteTimeSpan);
    }

    /// <summary>Starts a checkpoint, which frees journal segments, and has the journal look for space again.</summary>
    private void LookForSpace()
    {
        if (HasEnded)
            return;
        _spaceTimer?.Dispose();
        _spaceTimer = null;
        if (!IsDiskFull)
            return;
        _checkpoints.StartForSpace();
        _journal.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
        WatchSpace();
    }

    private void AnswerQueued(WriteOutcome outcome) => AnswerQueued(outcome, _chain);

    private void AnswerQueued(WriteOutcome outcome, AnswerChain chain)
    {
        while (_queue.TryTake(out var request))
            chain.Add(request, WriteResult.Of(outcome));
        chain.Flush();
    }

    private void Guarded(Action action)
    {
        if (HasEnded)
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
        if (HasEnded)
            return;
        _failure = exception;
        _isLeading = false;
        _spaceTimer?.Dispose();
        _holdTimer?.Dispose();
        _answers.End(WriteOutcome.OutcomeUnknown, WriteOutcome.OutcomeUnknown);
        AnswerQueued(WriteOutcome.Stopped);
        _checkpoints.Fail(exception);
        _scrub.Dispose();
        DropDigest();
        // Posted, because the owner may be in the middle of a call into this store.
        _context.Writer.Post(_failureNotice);
    }
}
