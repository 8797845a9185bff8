using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// A replica of a shard on disk: its parts, put together, and its life from open to close. Callers use the parts directly. Every member, here and of the
/// parts, is called on the shard's writer executor unless its comment says "any thread". Nothing here blocks, sleeps or starts a thread.
/// </summary>
/// <remarks>
/// Internal failures are not thrown. The first one is kept, all waiters are answered, <see cref="IStoreEvents.Failed"/> is called once, and from then on
/// members do nothing. Only <see cref="Create"/>, <see cref="Open"/> and reads throw. A <see cref="CorruptStoreException"/> means that the disk does not
/// hold what was written to it; the replica can be rebuilt from a peer.
/// </remarks>
internal sealed class ReplicaStore : IDisposable
{
    private readonly StoreContext _context;
    private readonly JournalWriter _journal;
    private readonly ShardClock _shardClock;
    private readonly JournalCompletions _completions;
    private readonly EvictionSweep _sweep;
    private readonly StoreShutdown _shutdown;
    private readonly StoreMemory _memory;
    private readonly bool _endedUncleanly;
    private IStoreEvents? _events;

    private ReplicaStore(StoreContext context, RecoveredStore recovered)
    {
        _context = context;
        Pages = recovered.Pages;
        Directory = recovered.Layout.Directory;
        _endedUncleanly = recovered.EndedUncleanly;
        Life = new StoreLifecycle { HasFailed = OnFailed };
        // A reader may be the first to find damage. The reader gets an exception, and the replica stops as well.
        Pages.Space.Damaged = found => context.Writer.Post(new WorkAction(() => Life.Fail(found)));
        var (index, segments) = (recovered.Index, new SegmentReader(context.Files, recovered.JournalDirectory));
        var reserve = new SpaceReserve(context.Files, recovered.Layout.Reserve, context.Options.ReserveBytes);
        _journal = new JournalWriter(
            context, recovered.JournalDirectory, recovered.Layout.Aside, recovered.Control, reserve, new WorkAction(() => _completions!.Take()));
        _shardClock = new ShardClock(context.Time, context.Options.ClockDriftPermille);
        Durable = new DurableRecords(index, _journal.Completed, recovered.Control.State);
        Log = new RecordLog(Life, index, segments, _journal, Durable);
        Reader = new JournalReader(context, Life, Pages, index, segments);
        Tail = new CommittedTail(context, Life, Pages, index, Reader, recovered.JournalDirectory);
        Action<Exception> readFailed = failure => context.Writer.Post(new WorkAction(() => Life.Fail(failure)));
        var prefetch = context.Prefetch is { } executor ? new PathPrefetch(executor, Pages, OpenSnapshot, readFailed) : null;
        // Nothing of the file is in memory, as far as is known. That of a store just made has nothing that could be read.
        if (Pages.Covered.Etag > Etag.None)
            prefetch?.BecomeCold();
        var recordsAhead = new ReadAhead(prefetch, context.Writer, () => Life.Guard(OnRecordsRead));
        Committed = new CommittedRecords(context, Life, Pages, index, Log, Reader, _shardClock, recordsAhead);
        // A checkpoint names nothing beyond what is durable here.
        Checkpoints = new CheckpointSchedule(
            context, Life, Pages, index, Tail.Holds, segments, _journal, reserve,
            () => Etag.Min(Pages.Roots.PublishedEtag, Durable.Last.Etag), () => Space!.Watch());
        _memory = new StoreMemory(context, Life, Pages, index, Checkpoints, OnPauseEnded);
        Space = new FullDiskWatch(context, Life, Pages, _journal, reserve, Checkpoints, _memory, () => Requests!.RefuseOnFullDisk());
        Committed.AppliesTo = () => Space.IsScarce ? Durable.Last.Etag : Etag.MaxValue;
        Requests = new RequestAdmission(context, Life, Log, Space, prefetch);
        Writes = new GroupCommit(context, Life, Pages, Log, Durable, Committed, Requests, Checkpoints, _memory, Space, _shardClock);
        Follower = new FollowerApply(context, Life, Pages, Durable, Committed, Checkpoints, _memory, Space);
        Log.Grew = bytes =>
        {
            Checkpoints.JournalGrewBy(bytes);
            _memory.ObserveJournal();
        };
        _completions = new JournalCompletions(Life, _journal, Durable, Writes, Checkpoints, _memory, Space);
        Scrub = new Scrub(context, Pages, Life);
        _sweep = new EvictionSweep(context, Pages.Space, Life, () => prefetch?.BecomeCold());
        Digests = new DigestAtRecord(context, Pages, Committed, Life);
        _shutdown = new StoreShutdown(context, Life, Directory, Pages, segments, _journal, Checkpoints, _memory, OnStopped);
        Statistics = new StoreStatistics(Pages, index, _journal, Checkpoints, Scrub, context.Time);
    }

    /// <summary>The replica's directory. Any thread.</summary>
    public string Directory { get; }

    /// <summary>Whether the store works, and what stopped it. Any thread.</summary>
    public StoreLifecycle Life { get; }

    /// <summary>The trees.</summary>
    public PageStore Pages { get; }

    /// <summary>The journal, to append to it.</summary>
    public RecordLog Log { get; }

    /// <summary>How far the disk is.</summary>
    public DurableRecords Durable { get; }

    /// <summary>The journal, to read it.</summary>
    public JournalReader Reader { get; }

    /// <summary>The committed records, for those who follow the shard. Any thread.</summary>
    public CommittedTail Tail { get; }

    /// <summary>The committed records that are not applied yet.</summary>
    public CommittedRecords Committed { get; }

    /// <summary>Applies a follower's committed records.</summary>
    public FollowerApply Follower { get; }

    /// <summary>Takes callers' requests.</summary>
    public RequestAdmission Requests { get; }

    /// <summary>A leader's writes.</summary>
    public GroupCommit Writes { get; }

    /// <summary>Checkpoints, and requests for them.</summary>
    public CheckpointSchedule Checkpoints { get; }

    /// <summary>Whether the disk has space.</summary>
    public FullDiskWatch Space { get; }

    /// <summary>Reads the data file in the background.</summary>
    public Scrub Scrub { get; }

    /// <summary>The digest of the trees at a record.</summary>
    public DigestAtRecord Digests { get; }

    /// <summary>Sizes, counts and ages of this store.</summary>
    public StoreStatistics Statistics { get; }

    /// <summary>
    /// Shard time at this moment, in microseconds: what a key's expiry is compared with to tell how long it lives. At a leader it is the clock by which keys
    /// end. Any other replica counts on from the newest record that it has. Any thread.
    /// </summary>
    public long ShardTime => _shardClock.Present;

    /// <summary>Creates a replica's directory atomically and opens it. The parent directory must exist, the directory must not. Any thread.</summary>
    public static ReplicaStore Create(StoreContext context, string directory, ControlState initial)
    {
        StoreDirectory.Create(context, directory, initial);
        return Open(context, directory);
    }

    /// <summary>
    /// Opens a replica's directory as <see cref="RecoveryDecisions"/> decides. Records up to the greater of the checkpoint's and the control file's committed
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
            store.Committed.Add(Etag.Max(store.Pages.Covered.Etag, store.Durable.Control.Committed));
            store.Committed.ApplyAll();
            recovered.LogReplay(readTime, store.Pages.Roots.PublishedEtag, context.Time.GetElapsedTime(began));
            store._shardClock.Reset(store.Pages);
            recovered.StartSegment(store._journal);
            store.Durable.Control = recovered.Control.State;
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
        Requests.Start(events);
        Writes.Start(events);
        _completions.Start(events);
        Checkpoints.CountUncovered();
        Space.Start();
        Scrub.Start(_endedUncleanly);
        _sweep.Start();
        if (_endedUncleanly)
            StoreLog.ScrubsAtOnce(_context.Log, Directory);
        // On the writer, which may at once be asked for a checkpoint.
        _context.Writer.Post(Life.Guarded(_memory.Observe));
    }

    /// <summary>A snapshot of the published state for a caller. Any thread; the caller disposes it.</summary>
    /// <exception cref="StoreStoppedException">The engine has failed, or the store is closed.</exception>
    public ReadSnapshot OpenSnapshot() => OpenSnapshot(forDigest: false);

    /// <summary>The same, or one of the store's own for a digest, which has a bound of its own.</summary>
    /// <inheritdoc cref="OpenSnapshot()" path="/exception"/>
    public ReadSnapshot OpenSnapshot(bool forDigest)
    {
        // Open first and check afterwards: if a concurrent close does not see this snapshot, the check sees the close.
        var snapshot = Pages.Roots.OpenSnapshot(forDigest);
        if (_shutdown.AdmitsReaders)
            return snapshot;
        snapshot.Dispose();
        throw new StoreStoppedException(Life.Failure);
    }

    /// <inheritdoc cref="StoreShutdown.Stop"/>
    public void Stop(Action quiet) => _shutdown.Stop(quiet);

    /// <inheritdoc cref="StoreShutdown.CloseAsync"/>
    public Task CloseAsync() => _shutdown.CloseAsync();

    /// <summary>
    /// Answers all waiters and releases the files at once, as if the process had died. The executors must no longer run anything of this shard, and no
    /// snapshot may be open. Otherwise use <see cref="CloseAsync"/>, after which this does nothing.
    /// </summary>
    public void Dispose()
    {
        if (Life.IsStopped)
        {
            Checkpoints.EndRequests();
            return;
        }
        Digests.Release();
        _shutdown.CloseNow();
    }

    private void OnRecordsRead()
    {
        if (Committed.IsApplying)
            _events!.WorkQueued();
    }

    private void OnPauseEnded()
    {
        if (Committed.IsApplying)
            _events!.WorkQueued();
        else
            Writes.TellWork();
    }

    private void OnFailed(Exception first)
    {
        _journal.End(first);
        EndWork(WriteOutcome.OutcomeUnknown);
        Checkpoints.Fail(first);
        // Posted, because the owner may be in the middle of a call into this store.
        _context.Writer.Post(new WorkAction(() => _events?.Failed(first)));
    }

    private void OnStopped()
    {
        EndWork(WriteOutcome.Stopped);
        Checkpoints.Stop();
    }

    private void EndWork(WriteOutcome reads)
    {
        Space.Dispose();
        _memory.End();
        Writes.End(reads);
        Scrub.Dispose();
        _sweep.Dispose();
        Digests.Drop();
    }
}
