using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// A data file: copy-on-write trees in memory and their checkpoints on disk. Snapshots, pins, counts and sizes are available on any thread,
/// <see cref="Checkpoint.Write"/> on the checkpoint executor; everything else is called on the shard's writer only. It has no threads or clock of its own,
/// and no lock. An exception other than a full disk stops the engine.
/// </summary>
/// <remarks>
/// This class orders the steps; the parts own their state: <see cref="MetaPages"/>, <see cref="FreeMap"/>, <see cref="WriteBatch"/>,
/// <see cref="PageReclamation"/>, <see cref="CheckpointPins"/>. A page of the file passes through these states: in use; retired by an unpublished batch (in
/// use again when that is dropped); retired by a published batch; pending in the next checkpoint's map; free in the map after that, once the finish of its
/// checkpoint has overwritten the last meta page that reached it; reusable when no pin of a checkpoint that reached it is open, and no reader has a root
/// from its lifetime.
/// </remarks>
internal sealed unsafe class PageStore : IDisposable
{
    private readonly ReaderSlots _readers;
    private readonly ScratchPool _pool = new();
    private readonly WriteBatch _batch;
    private readonly List<SealedBatch> _unpublished = [];
    private readonly Stack<SealedBatch> _emptyBatches = new();
    private readonly CheckpointPins _pins;
    private readonly PageReclamation _reclamation;

    /// <summary>Pages that the newest checkpoint reaches and the published state does not.</summary>
    private List<PageRun> _left = [];

    /// <summary>Pages that the newest checkpoint's map calls pending: only the older meta page reaches them.</summary>
    private List<PageRun> _pending;

    /// <summary>
    /// The batch of the last checkpoint that was finished. No batch up to it reaches what later checkpoints place, and no batch from it on reaches pending
    /// pages. 0: the state at the open.
    /// </summary>
    private ulong _batchCheckpointed;
    private Checkpoint? _checkpoint;
    private StoreRoot _published;
    private ulong _batchNumber;

    private PageStore(IStorageFile file, PageStoreOptions options, MetaPages meta)
    {
        (File, Options, Meta) = (file, options, meta);
        // A file that has almost filled its range gets a larger one at the next open.
        Space = new PageSpace(file, Math.Max(options.MapBytes, 2 * file.Length));
        Free = FreeMap.Load(Space, meta.Newest);
        _pending = Free.PendingRuns();
        _readers = new ReaderSlots(options.SnapshotsMax);
        _pins = new CheckpointPins(meta.Newest, Free.UsedRuns());
        _reclamation = new PageReclamation(_readers, _pins, _pool, Free, options.PinnedBytesMax);
        _batch = new WriteBatch(Space, _pool);
        _published = new StoreRoot(meta.Newest.CheckpointPosition.Etag, 0, meta.Newest.Trees);
        FileSpace = new FileSpace(file, Space);
    }

    /// <summary>What the newest checkpoint covers. Any thread.</summary>
    public CheckpointPosition Covered => Meta.Newest.CheckpointPosition;

    /// <summary>What the older meta page covers. The journal is needed from there on (S5). Any thread.</summary>
    public CheckpointPosition CoveredByOlderMeta => Meta.Older.CheckpointPosition;

    /// <summary>Identifies the replica whose file this is, as passed to <see cref="Create"/>.</summary>
    public UInt128 Identity => Meta.Newest.Identity;

    /// <summary>Etag of the newest sealed batch.</summary>
    public Etag NewestEtag => NewestRoot.Etag;

    /// <summary>Etag that readers see. Any thread.</summary>
    public Etag PublishedEtag => Volatile.Read(ref _published).Etag;

    /// <summary>How the newest checkpoint was written; all zero for one before the open. Writer.</summary>
    public WriteCounts CheckpointCounts { get; private set; }

    /// <summary>Memory of pages that are in no checkpoint yet or that readers still need. Any thread.</summary>
    public long ScratchBytes => _pool.Bytes - _reclamation.PlacedBytes;

    /// <summary>Bytes of scratch memory whose pages a checkpoint has placed, and which is returned in steps. Any thread.</summary>
    public long PlacedBytes => _reclamation.PlacedBytes;

    /// <summary>The part of <see cref="ScratchBytes"/> that only readers still need. Any thread; may be out of date.</summary>
    public long HeldScratchBytes => _reclamation.HeldScratchBytes;

    /// <summary>Memory allocated from the system for scratch pages, in use or not. Any thread.</summary>
    public long ScratchReservedBytes => _pool.ReservedBytes;

    /// <inheritdoc cref="ScratchPool.KeepEmpty"/>
    public void KeepFreePages(bool few) => _pool.KeepEmpty(few);

    /// <summary>
    /// Bytes of memory that only readers still need, plus bytes of the file that readers and pins keep from being reused. Any thread; may be out of date.
    /// </summary>
    public long PinnedBytes => _reclamation.PinnedBytes;

    /// <summary>Length of the file. Any thread.</summary>
    public long FileBytes => FileSpace.Bytes;

    internal IStorageFile File { get; }

    internal PageStoreOptions Options { get; }

    internal PageSpace Space { get; }

    internal FileSpace FileSpace { get; }

    internal FreeMap Free { get; }

    internal MetaPages Meta { get; }

    /// <summary>
    /// The first batch whose root may reach pages that the next checkpoint places. While a checkpoint is in progress its executor may read this; only the
    /// finish changes it.
    /// </summary>
    internal ulong FirstBatchToPlace => _batchCheckpointed + 1;

    private StoreRoot NewestRoot => _unpublished.Count > 0 ? _unpublished[^1].Root : _published;

    /// <summary>Creates an empty data file with two meta pages. The file and its name are durable when this returns.</summary>
    public static PageStore Create(IFileSystem files, string path, PageStoreOptions options, ReadOnlySpan<byte> identity)
    {
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, options.Direct));
        try
        {
            var meta = MetaPages.Create(file, identity);
            files.SyncDirectory(Path.GetDirectoryName(path)!);
            return new PageStore(file, options, meta);
        }
        catch
        {
            file.Dispose();
            throw;
        }
    }

    /// <summary>Opens the file at the newest intact meta page. Never walks the trees.</summary>
    /// <exception cref="CorruptStoreException">No meta page is intact, the file is shorter than they say, or its free map is damaged.</exception>
    /// <exception cref="FormatVersionException">The file has another version.</exception>
    public static PageStore Open(IFileSystem files, string path, PageStoreOptions options)
    {
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting, options.Direct));
        try
        {
            return new PageStore(file, options, MetaPages.Read(file));
        }
        catch
        {
            file.Dispose();
            throw;
        }
    }

    /// <summary>Open snapshots. Any thread.</summary>
    public int ReaderCount => _readers.Count();

    /// <summary>Whether a snapshot is open. Writer, when no new ones can be opened.</summary>
    public bool HasReaders => _readers.Oldest() != ulong.MaxValue;

    /// <summary>Opens a batch on the newest state. Only one at a time.</summary>
    public WriteBatch Begin()
    {
        ReleaseRetired();
        _batch.Open(NewestRoot, ++_batchNumber, _emptyBatches.TryPop(out var changes) ? changes : new SealedBatch());
        return _batch;
    }

    /// <summary>Closes the batch that <see cref="Begin"/> returned. It becomes the newest state, unpublished. Etags must increase.</summary>
    public void Seal(WriteBatch batch, Etag etag)
    {
        Invariant.Check(batch == _batch, $"A batch of another store was sealed.");
        Invariant.Check(etag > NewestRoot.Etag, $"A batch was sealed as {etag}, which is not after {NewestRoot.Etag}.");
        _unpublished.Add(batch.End(etag));
    }

    /// <summary>Closes the batch that <see cref="Begin"/> returned and discards its changes.</summary>
    public void Abort(WriteBatch batch)
    {
        Invariant.Check(batch == _batch, $"A batch of another store was aborted.");
        Discard(batch.EndUnsealed());
    }

    /// <summary>Publishes the newest sealed root with this etag or a lower one; readers see it from now on.</summary>
    public void Publish(Etag etag)
    {
        var count = 0;
        while (count < _unpublished.Count && _unpublished[count].Root.Etag <= etag)
            count++;
        if (count == 0)
            return;
        Volatile.Write(ref _published, _unpublished[count - 1].Root);
        var epoch = _readers.NextEpoch();
        for (var i = 0; i < count; i++)
        {
            var batch = _unpublished[i];
            foreach (var page in batch.RetiredScratch)
            {
                if (_checkpoint is not null && Page.Batch((byte*)page) <= _checkpoint.Root.Batch)
                    _checkpoint.LeftSince.Add(page, batch.Root.Batch);
                else
                    _reclamation.RetireScratch(page, epoch, batch.Root.Batch);
            }
            _left.AddRange(batch.RetiredFilePages);
            Recycle(batch);
        }
        _unpublished.RemoveRange(0, count);
    }

    /// <summary>Drops all sealed roots that are not published, with their scratch pages and the pages they retired.</summary>
    public void DropUnpublished()
    {
        Invariant.Check(!_batch.IsOpen, $"Unpublished roots were dropped while a batch was open.");
        foreach (var batch in _unpublished)
            Discard(batch);
        _unpublished.Clear();
    }

    /// <summary>
    /// Freezes the published root for a checkpoint. Null when nothing is new, or when the published root is beyond <paramref name="etagMax"/>. In that
    /// case the root stays frozen, and the next call that allows its etag returns it.
    /// </summary>
    /// <param name="coverageOf">Returns the journal position for a root's etag.</param>
    /// <param name="etagMax">The lesser of the committed and the locally durable etag.</param>
    /// <param name="repeats">
    /// Write a checkpoint even if nothing is new, provided that the older meta page would then cover more, so that journal segments can be recycled.
    /// </param>
    public Checkpoint? BeginCheckpoint(Func<Etag, CheckpointPosition> coverageOf, Etag etagMax, bool repeats = false)
    {
        Invariant.Check(_checkpoint is not { IsBegun: true }, $"A checkpoint was begun before the last one was finished.");
        if (_checkpoint is null && _published.Etag == Covered.Etag && !(repeats && CoveredByOlderMeta.Etag < Covered.Etag))
            return null;
        if (_checkpoint is null)
        {
            _checkpoint = new Checkpoint(this, _published, _left);
            _left = [];
        }
        if (_checkpoint.Etag > etagMax)
            return null;
        _checkpoint.Begin(coverageOf(_checkpoint.Etag));
        return _checkpoint;
    }

    /// <summary>Called after <see cref="Checkpoint.Write"/>, between batches. Makes the trees refer to the file and retires the scratch pages.</summary>
    public void FinishCheckpoint(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _checkpoint && checkpoint.Meta is not null && !_batch.IsOpen, $"A checkpoint was finished before it was written, or during a batch.");
        foreach (var page in checkpoint.LeftSince.Keys)
            _left.Add(PlacedPages.RunOf(page));
        var placed = new PlacedPages(Space, checkpoint);
        foreach (var batch in _unpublished)
            placed.ReplaceRetired(batch);
        foreach (var batch in _unpublished)
            batch.Root = placed.Replace(batch.Root);
        Volatile.Write(ref _published, placed.Replace(_published));
        var epoch = _readers.NextEpoch();
        _reclamation.RetirePlaced(checkpoint, epoch);
        // The map belongs to the writer again. What was pending is free, and the last meta page that reached it is overwritten.
        Free.Keep();
        foreach (var run in _pending)
            _reclamation.RetireRun(run, epoch, _batchCheckpointed, Meta.Newest.Revision);
        _pending = checkpoint.PendingRuns;
        _batchCheckpointed = checkpoint.Root.Batch;
        Meta.Advance(checkpoint.Meta);
        _pins.Advance(checkpoint.Meta, checkpoint.UsedRuns);
        CheckpointCounts = checkpoint.Counts;
        _checkpoint = null;
        ReleaseRetired();
    }

    /// <summary>
    /// Returns some of the memory of finished checkpoints, as every batch does when it begins; true while there is more. Not during a batch.
    /// </summary>
    public bool ReleaseSome()
    {
        ReleaseRetired();
        return _reclamation.PlacedBytes > 0;
    }

    /// <summary>Abandons a checkpoint whose write found the disk full. Nothing of it counts, and the next one starts over.</summary>
    public void AbandonCheckpoint(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _checkpoint && checkpoint.MayBeAbandoned, $"A checkpoint was abandoned although its meta page may be durable.");
        Free.Restore();
        checkpoint.Left.AddRange(_left);
        _left = checkpoint.Left;
        var epoch = _readers.NextEpoch();
        foreach (var (page, left) in checkpoint.LeftSince)
            _reclamation.RetireScratch(page, epoch, left);
        _checkpoint = null;
    }

    /// <summary>Opens a snapshot of the published state. Any thread; allocates nothing.</summary>
    /// <exception cref="SnapshotLimitException">The limit of open snapshots is reached.</exception>
    public ReadSnapshot OpenSnapshot()
    {
        var slot = _readers.Enter(out var ticket);
        var root = Volatile.Read(ref _published);
        _readers.NameRoot(slot, root.Batch);
        return new ReadSnapshot(this, root, slot, ticket);
    }

    /// <summary>Number of keys of a tree in the published state. Any thread.</summary>
    public ulong Count(TreeId tree) => Volatile.Read(ref _published).Trees[(int)tree].Count;

    /// <summary>Pins the newest checkpoint. Any thread.</summary>
    public CheckpointPin Pin() => _pins.Pin(this);

    /// <summary>
    /// Checks everything: each page of the file is exactly one of reachable, free or pending, and checksums, key order and counts are right. Writer, with
    /// no batch open and no checkpoint in progress.
    /// </summary>
    /// <exception cref="CorruptStoreException">A check failed; the message says which.</exception>
    public void Verify()
    {
        Invariant.Check(!_batch.IsOpen && _checkpoint is not { IsBegun: true }, $"The store was verified during a batch or checkpoint.");
        var leaving = new List<List<PageRun>> { _left, _pending };
        if (_checkpoint is not null)
            leaving.Add(_checkpoint.Left);
        leaving.Add([.. _reclamation.Runs]);
        var walk = new StoreWalk(Space, Free, leaving);
        walk.CheckPublished(_published, Meta.Newest);
        walk.CheckProtected(Meta.Newest.Trees, "newest checkpoint");
        walk.CheckProtected(Meta.Older.Trees, "older checkpoint");
        foreach (var batch in _unpublished)
            walk.CheckProtected(batch.Root.Trees, "unpublished root");
    }

    /// <summary>Begins the part of <see cref="Verify"/> that can fail in a file that was received whole and is not in use yet, to be done in steps.</summary>
    public StoreWalk BeginWalk()
    {
        var walk = new StoreWalk(Space, Free, [_left, _pending]);
        walk.BeginPublished(_published.Trees, Meta.Newest);
        return walk;
    }

    /// <summary>
    /// Closes the file. All snapshots must be closed, and the executors must run nothing of this store. Changes that are in no checkpoint are lost.
    /// </summary>
    public void Dispose()
    {
        File.Dispose();
        _pool.Dispose();
    }

    /// <summary>Frees the scratch pages of an unpublished batch. The pages that it retired are in use as before.</summary>
    private void Discard(SealedBatch batch)
    {
        foreach (var page in batch.Made)
            _pool.Return((byte*)page);
        Recycle(batch);
    }

    /// <summary>Collects all open snapshots. Writer.</summary>
    internal void CollectReaders(List<ReaderSlots.Reader> readers) => _readers.Collect(readers);

    internal bool MustEnd(int slot, ulong ticket) => _readers.MustEnd(slot, ticket);

    internal void CloseSnapshot(int slot, ulong ticket) => _readers.Leave(slot, ticket);

    /// <summary>Reads with a call that can fail. Accessing a bad sector through the mapping would crash the process.</summary>
    internal void ReadFilePages(long first, Span<byte> destination)
    {
        Invariant.Check(destination.Length % Page.Bytes == 0 && (first * Page.Bytes) + destination.Length <= FileBytes, $"Pages from {first} on are beyond the end of the file, or not read as whole pages.");
        if (File.Read(destination, first * Page.Bytes) < destination.Length)
            throw new CorruptStoreException($"'{File.Path}' ends before page {first + (destination.Length / Page.Bytes)}.");
    }

    private void Recycle(SealedBatch batch)
    {
        batch.Clear();
        _emptyBatches.Push(batch);
    }

    private void ReleaseRetired() => _reclamation.Release(ownsFreeMap: _checkpoint is not { IsBegun: true });
}
