using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// A data file: copy-on-write trees in memory and their checkpoints on disk. Snapshots, pins, counts and sizes are available on any thread,
/// <see cref="Checkpoint.Write"/> on the checkpoint executor; everything else is called on the shard's writer only. It has no threads or clock of its own,
/// and no lock except one for pins. An exception other than a full disk stops the engine.
/// </summary>
/// <remarks>
/// A page of the file passes through these states: in use; retired by an unpublished batch (in use again when that is dropped); retired by a published
/// batch; pending in the next checkpoint's map; free in the map after that, once the finish of its checkpoint has overwritten the last meta page that
/// reached it; reusable when no pin of a checkpoint that reached it is open, and no reader has a root from its lifetime.
/// </remarks>
internal sealed unsafe class PageStore : IDisposable
{
    private readonly ReaderSlots _readers;
    private readonly ScratchPool _pool = new();
    private readonly WriteBatch _batch;
    private readonly List<SealedBatch> _unpublished = [];
    private readonly Stack<SealedBatch> _emptyBatches = new();
    private readonly RetiredPages<RetiredScratch> _retiredScratch;
    private readonly RetiredPages<RetiredRun> _retiredRuns;

    /// <summary>
    /// Runs that pins keep, grouped by the revision of one such pin. They are checked again only when that pin is gone, so they cost nothing until then.
    /// </summary>
    private readonly Dictionary<ulong, List<RetiredRun>> _pinnedRuns = [];
    private readonly List<ulong> _pinsGone = [];
    private readonly List<ReaderSlots.Reader> _present = [];
    private readonly Lock _pinLock = new();

    /// <summary>Revision of each open pin. The array is never changed but replaced under the lock, because the writer reads it for every batch.</summary>
    private ulong[] _pins = [];
    private List<PageRun> _left = [];
    private List<PageRun> _pending;

    /// <summary>
    /// The batch of the last checkpoint that was finished. No batch up to it reaches what later checkpoints place, and no batch from it on reaches pending
    /// pages. 0: the state at the open.
    /// </summary>
    private ulong _batchCheckpointed;
    private Checkpoint? _checkpoint;
    private StoreRoot _published;
    private MetaPage _newestMeta;
    private MetaPage _olderMeta;
    private IReadOnlyList<PageRun> _newestRuns = [];
    private ulong _batchNumber;
    private long _fileBytes;
    private long _retiredFileBytes;
    private bool _newestMetaIsSynced;

    private PageStore(IStorageFile file, PageStoreOptions options, MetaPage newest, MetaPage older)
    {
        (File, Options, _newestMeta, _olderMeta) = (file, options, newest, older);
        // A file that has almost filled its range gets a larger one at the next open.
        Space = new PageSpace(file, Math.Max(options.MapBytes, 2 * file.Length));
        Free = FreeMap.Load(Space, newest);
        _pending = Free.PendingRuns();
        _readers = new ReaderSlots(options.SnapshotsMax);
        _retiredScratch = new RetiredPages<RetiredScratch>(_readers, retired => _pool.Return((byte*)retired.Page));
        _retiredRuns = new RetiredPages<RetiredRun>(_readers, AllowReuse);
        _batch = new WriteBatch(Space, _pool);
        _published = new StoreRoot(newest.CheckpointPosition.Etag, 0, newest.Trees);
        _fileBytes = file.Length;
        _newestRuns = Free.UsedRuns();
    }

    /// <summary>What the newest checkpoint covers. Any thread.</summary>
    public CheckpointPosition Covered => Volatile.Read(ref _newestMeta).CheckpointPosition;

    /// <summary>What the older meta page covers. The journal is needed from there on (S5). Any thread.</summary>
    public CheckpointPosition CoveredByOlderMeta => Volatile.Read(ref _olderMeta).CheckpointPosition;

    /// <summary>Identifies the replica whose file this is, as passed to <see cref="Create"/>.</summary>
    public UInt128 Identity => _newestMeta.Identity;

    /// <summary>Etag of the newest sealed batch.</summary>
    public UInt128 NewestEtag => NewestRoot.Etag;

    /// <summary>Etag that readers see. Any thread.</summary>
    public UInt128 PublishedEtag => Volatile.Read(ref _published).Etag;

    /// <summary>Memory of pages that are in no checkpoint yet or that readers still need. Any thread.</summary>
    public long ScratchBytes => _pool.Bytes;

    /// <summary>The part of <see cref="ScratchBytes"/> that only readers still need. Any thread; may be out of date.</summary>
    public long HeldScratchBytes => _retiredScratch.HeldBytes;

    /// <summary>Memory allocated from the system for scratch pages, in use or not. Any thread.</summary>
    public long ScratchReservedBytes => _pool.ReservedBytes;

    /// <summary>
    /// Bytes of memory that only readers still need, plus bytes of the file that readers and pins keep from being reused. Any thread; may be out of date.
    /// </summary>
    public long PinnedBytes => _retiredScratch.HeldBytes + Volatile.Read(ref _retiredFileBytes);

    /// <summary>Length of the file. Any thread.</summary>
    public long FileBytes => Volatile.Read(ref _fileBytes);

    internal IStorageFile File { get; }

    internal PageStoreOptions Options { get; }

    internal PageSpace Space { get; }

    internal FreeMap Free { get; }

    internal MetaPage NewestMeta => _newestMeta;

    /// <summary>
    /// The first batch whose root may reach pages that the next checkpoint places. While a checkpoint is in progress its executor may read this; only the
    /// finish changes it.
    /// </summary>
    internal ulong FirstBatchToPlace => _batchCheckpointed + 1;

    private StoreRoot NewestRoot => _unpublished.Count > 0 ? _unpublished[^1].Root : _published;

    /// <summary>Creates an empty data file with two meta pages. The file and its name are durable when this returns.</summary>
    public static PageStore Create(IFileSystem files, string path, PageStoreOptions options, ReadOnlySpan<byte> identity)
    {
        var newest = new MetaPage
        {
            Revision = 2,
            Identity = BinaryPrimitives.ReadUInt128LittleEndian(identity),
            FilePages = 2,
            Trees = new TreeRoot[StoreRoot.TreesMax],
        };
        var older = newest with { Revision = 1 };
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, options.Direct));
        try
        {
            file.Resize(2 * Page.Bytes);
            WriteMeta(file, older);
            WriteMeta(file, newest);
            file.Sync();
            files.SyncDirectory(Path.GetDirectoryName(path)!);
            return new PageStore(file, options, newest, older) { _newestMetaIsSynced = true };
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
            var first = ReadMeta(file, 0);
            var second = ReadMeta(file, 1);
            if (first is null && second is null)
                throw new CorruptStoreException($"'{path}': neither meta page is intact.");
            var (newest, older) = (first?.Revision ?? 0) > (second?.Revision ?? 0) ? (first!, second) : (second!, first);
            if (newest.FilePages < 2 || newest.FilePages > FreeMap.FilePagesMax)
                throw new CorruptStoreException($"'{path}': its meta page records {newest.FilePages} pages, but a file must have 2 to {FreeMap.FilePagesMax}.");
            if (newest.Trees.Any(tree => tree.Reference != 0 && !PageStructure.IsReference(tree.Reference, newest.FilePages)))
                throw new CorruptStoreException($"'{path}': its meta page has an invalid reference to the root of a tree.");
            if (file.Length < newest.FilePages * Page.Bytes)
                throw new CorruptStoreException($"'{path}' has {file.Length} bytes, but its meta page records {newest.FilePages * Page.Bytes}.");
            // A torn meta page was being written when the power failed. Then only the newest one is needed, and it is on disk.
            return new PageStore(file, options, newest, older ?? newest) { _newestMetaIsSynced = older is null };
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
    public void Seal(WriteBatch batch, UInt128 etag)
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
    public void Publish(UInt128 etag)
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
                    _retiredScratch.Add(new RetiredScratch(epoch, page, batch.Root.Batch));
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
    public Checkpoint? BeginCheckpoint(Func<UInt128, CheckpointPosition> coverageOf, UInt128 etagMax, bool repeats = false)
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
            _left.Add(PlacedRun((byte*)page));
        foreach (var batch in _unpublished)
            LeavePlacedPages(batch, checkpoint.Root.Batch);
        foreach (var batch in _unpublished)
            batch.Root = WithPlaces(batch.Root, checkpoint);
        Volatile.Write(ref _published, WithPlaces(_published, checkpoint));
        var epoch = _readers.NextEpoch();
        foreach (var page in checkpoint.Scratch)
            _retiredScratch.Add(new RetiredScratch(epoch, page, checkpoint.LeftSince.GetValueOrDefault(page, ulong.MaxValue)));
        // The map belongs to the writer again. What was pending is free, and the last meta page that reached it is overwritten.
        Free.Keep();
        foreach (var run in _pending)
            Retire(run, epoch);
        _pending = checkpoint.PendingRuns;
        _batchCheckpointed = checkpoint.Root.Batch;
        lock (_pinLock)
        {
            Volatile.Write(ref _olderMeta, _newestMeta);
            Volatile.Write(ref _newestMeta, checkpoint.Meta);
            _newestRuns = checkpoint.UsedRuns;
        }
        _checkpoint = null;
        ReleaseRetired();
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
            _retiredScratch.Add(new RetiredScratch(epoch, page, left));
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
    public CheckpointPin Pin()
    {
        lock (_pinLock)
        {
            Volatile.Write(ref _pins, [.. _pins, _newestMeta.Revision]);
            return new CheckpointPin(this, _newestMeta, _newestRuns);
        }
    }

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
        leaving.Add([.. _retiredRuns.All.Concat(_pinnedRuns.Values.SelectMany(runs => runs)).Select(retired => retired.Run)]);
        var walk = new StoreWalk(Space, Free, leaving);
        walk.CheckPublished(_published, _newestMeta);
        walk.CheckProtected(_newestMeta.Trees, "newest checkpoint");
        walk.CheckProtected(_olderMeta.Trees, "older checkpoint");
        foreach (var batch in _unpublished)
            walk.CheckProtected(batch.Root.Trees, "unpublished root");
    }

    /// <summary>Begins the part of <see cref="Verify"/> that can fail in a file that was received whole and is not in use yet, to be done in steps.</summary>
    public StoreWalk BeginWalk()
    {
        var walk = new StoreWalk(Space, Free, [_left, _pending]);
        walk.BeginPublished(_published.Trees, _newestMeta);
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

    internal static void WriteMeta(IStorageFile file, MetaPage meta)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        meta.Encode(buffer.Span);
        file.Write(buffer.Span, meta.PageNumber * Page.Bytes);
    }

    /// <summary>
    /// Called before anything is overwritten that only an older meta page reaches. The sync of the meta page found at the open may have failed in the
    /// previous process. In that case the page is in the system's cache only, and a later sync does not write it to disk. Should it be torn here, the
    /// other one counts. Checkpoint executor.
    /// </summary>
    internal void SyncNewestMeta()
    {
        if (_newestMetaIsSynced)
            return;
        WriteMeta(File, _newestMeta);
        File.Sync();
        _newestMetaIsSynced = true;
    }

    /// <summary>
    /// Grows the file to the wanted length, or to the needed length if the disk has no more space. Returns its length in pages. Checkpoint executor.
    /// </summary>
    internal long GrowFile(long pagesNeeded, long pagesWanted)
    {
        var pagesMax = Math.Min(Space.PagesMax, FreeMap.FilePagesMax);
        if (pagesNeeded > pagesMax)
            throw new StorageIoException("grow", File.Path, $"{pagesNeeded} pages are needed, but at most {pagesMax} can be mapped", isDiskFull: true);
        pagesWanted = Math.Min(pagesWanted, pagesMax);
        try
        {
            if (File.Length < pagesWanted * Page.Bytes)
                File.Resize(pagesWanted * Page.Bytes);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull && pagesNeeded < pagesWanted)
        {
            pagesWanted = pagesNeeded;
            if (File.Length < pagesNeeded * Page.Bytes)
                File.Resize(pagesNeeded * Page.Bytes);
        }
        Volatile.Write(ref _fileBytes, File.Length);
        return pagesWanted;
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

    internal void Unpin(ulong revision)
    {
        lock (_pinLock)
        {
            var index = Array.IndexOf(_pins, revision);
            Volatile.Write(ref _pins, [.. _pins[..index], .. _pins[(index + 1)..]]);
        }
    }

    /// <summary>Null if the page is torn, is not a meta page, or cannot be read, which is treated like torn.</summary>
    private static MetaPage? ReadMeta(IStorageFile file, long number)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        try
        {
            return file.Read(buffer.Span, number * Page.Bytes) == Page.Bytes ? MetaPage.TryDecode(buffer.Span, file.Path) : null;
        }
        catch (StorageIoException)
        {
            return null;
        }
    }

    private void Recycle(SealedBatch batch)
    {
        batch.Clear();
        _emptyBatches.Push(batch);
    }

    private static PageRun PlacedRun(byte* page) =>
        new(PageSpace.NumberOf(Page.Placed(page)), Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1);

    /// <summary>
    /// For scratch pages that were placed in the file and retired by an unpublished batch: the batch now retires the pages of the file instead.
    /// </summary>
    private static void LeavePlacedPages(SealedBatch batch, ulong batchFrozen)
    {
        foreach (var page in batch.RetiredScratch)
        {
            if (Page.Batch((byte*)page) <= batchFrozen)
                batch.RetiredFilePages.Add(PlacedRun((byte*)page));
        }
        batch.RetiredScratch.RemoveAll(page => Page.Batch((byte*)page) <= batchFrozen);
    }

    /// <summary>The root with references to the file, after the references in all younger scratch pages that it reaches were replaced.</summary>
    private StoreRoot WithPlaces(StoreRoot root, Checkpoint checkpoint)
    {
        var trees = new TreeRoot[StoreRoot.TreesMax];
        for (var i = 0; i < trees.Length; i++)
        {
            trees[i] = root.Trees[i];
            if (!PageSpace.IsScratch(trees[i].Reference))
                continue;
            var page = Space.Locate(trees[i].Reference);
            if (Page.Batch(page) <= checkpoint.Root.Batch)
                trees[i] = checkpoint.Placed(trees[i]);
            else
                PlaceChildren(page, checkpoint);
        }
        return new StoreRoot(root.Etag, root.Batch, trees);
    }

    private void PlaceChildren(byte* page, Checkpoint checkpoint)
    {
        // Bit 0 distinguishes the mark of a visited page from a location.
        var mark = (checkpoint.Meta!.Revision << 1) | 1;
        if (Page.Placed(page) == mark || Page.Type(page) == PageType.Overflow)
            return;
        Page.Placed(page) = mark;
        if (Page.Type(page) == PageType.Leaf && !Page.HasOverflow(page))
            return;
        for (var i = 0; i < Page.Count(page); i++)
        {
            var child = TreePage.Child(page, i);
            if (Page.Type(page) == PageType.Leaf && !TreePage.IsOverflow(page, i, out child))
                continue;
            if (!PageSpace.IsScratch(*(ulong*)child))
                continue;
            var target = Space.Locate(*(ulong*)child);
            if (Page.Batch(target) > checkpoint.Root.Batch)
            {
                PlaceChildren(target, checkpoint);
                continue;
            }
            // Readers load the reference first. If they see the one to the file, they also see its checksum.
            *(uint*)(child + sizeof(ulong)) = Page.Checksum(target);
            Volatile.Write(ref *(ulong*)child, Page.Placed(target));
        }
    }

    /// <summary>Frees what no reader or pin can reach any more.</summary>
    private void ReleaseRetired()
    {
        if (_retiredScratch.IsEmpty && _retiredRuns.IsEmpty && _pinnedRuns.Count == 0)
            return;
        _readers.Collect(_present);
        _retiredScratch.Release(_present);
        var held = _retiredScratch.HeldBytes;
        // While a checkpoint is being written, the map does not belong to the writer. For runs it is therefore unknown during that time which readers no
        // longer need them.
        if (_checkpoint is not { IsBegun: true })
        {
            ReleaseRuns();
            held += _retiredRuns.HeldBytes;
        }
        // Does not count what pins or a checkpoint in progress keep: ending a reader would not free that.
        if (held > Options.PinnedBytesMax)
            EndReader();
    }

    /// <summary>
    /// Retires pages of the file that neither of the two newest checkpoints reaches. Parts of one run may have been placed by different checkpoints.
    /// </summary>
    private void Retire(PageRun run, ulong epoch)
    {
        _retiredFileBytes += run.Count * Page.Bytes;
        var pins = Volatile.Read(ref _pins);
        for (var (first, end) = (run.First, run.First + run.Count); first < end;)
        {
            var born = Free.BornOf(first);
            var next = first + 1;
            while (next < end && Free.BornOf(next) == born)
                next++;
            KeepWhilePinned(new RetiredRun(epoch, born, _batchCheckpointed, _newestMeta.Revision, new PageRun(first, next - first)), pins);
            first = next;
        }
    }

    private void ReleaseRuns()
    {
        var pins = Volatile.Read(ref _pins);
        foreach (var pinned in _pinnedRuns.Keys)
        {
            if (!pins.Contains(pinned))
                _pinsGone.Add(pinned);
        }
        foreach (var gone in _pinsGone)
        {
            _pinnedRuns.Remove(gone, out var runs);
            foreach (var run in runs!)
                KeepWhilePinned(run, pins);
        }
        _pinsGone.Clear();
        _retiredRuns.Release(_present);
    }

    /// <summary>
    /// Checks pins first and readers only when those are gone, so no reader is ended for pages that a pin keeps. No later pin reaches the run, because it
    /// would be of a later checkpoint.
    /// </summary>
    private void KeepWhilePinned(in RetiredRun retired, ulong[] pins)
    {
        foreach (var pinned in pins)
        {
            if (!retired.IsReachedByPin(pinned))
                continue;
            if (!_pinnedRuns.TryGetValue(pinned, out var runs))
                _pinnedRuns[pinned] = runs = [];
            runs.Add(retired);
            return;
        }
        _retiredRuns.Add(retired);
    }

    private void AllowReuse(RetiredRun retired)
    {
        Free.AllowReuse(retired.Run);
        _retiredFileBytes -= retired.Bytes;
    }

    /// <summary>Asks the oldest reader to end, since it holds the most, or nearly so. If that is not enough, the next one follows when it is gone.</summary>
    private void EndReader()
    {
        var oldest = ulong.MaxValue;
        foreach (var reader in _present)
            oldest = Math.Min(oldest, reader.Epoch);
        foreach (var reader in _present)
        {
            if (reader.Epoch == oldest)
                _readers.End(reader.Slot, reader.Ticket);
        }
    }
}
