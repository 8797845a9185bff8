using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// A data file: copy-on-write trees in memory and their checkpoints on the disk. Everything but snapshots, pins, counts and sizes is called on the shard's
/// writer only, <see cref="Checkpoint.Write"/> on its checkpoint executor. It has no threads, locks or clock of its own but a lock around pins. An exception
/// other than a full disk ends the engine.
/// </summary>
/// <remarks>
/// A page of the file goes through these hands: in use; left by a batch not yet published (goes with it when dropped); left by a published one; pending in the
/// next checkpoint's map; free in the map after that, when its checkpoint's finish has overwritten the last meta page that reached it; reusable
/// when no pin is open of a checkpoint that reached it, and no reader has a root from its life.
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

    /// <summary>Runs that pins keep, each by the revision of one of those pins: looked at again when that one is gone, so that they cost nothing while it is there.</summary>
    private readonly Dictionary<ulong, List<RetiredRun>> _pinnedRuns = [];
    private readonly List<ulong> _pinsGone = [];
    private readonly List<ReaderSlots.Reader> _present = [];
    private readonly Lock _pinLock = new();

    /// <summary>Revision of each open pin. Never changed, but replaced under the lock: the writer reads it for every batch.</summary>
    private ulong[] _pins = [];
    private List<PageRun> _left = [];
    private List<PageRun> _pending;

    /// <summary>The batch of the last checkpoint that was finished; none before it reaches what later ones place, and none from it on what is pending. 0: as opened.</summary>
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
        // A file that came near its range gets a larger one at the next open.
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

    /// <summary>What the older meta page covers: the journal is needed from there on (S5). Any thread.</summary>
    public CheckpointPosition CoveredByOlderMeta => Volatile.Read(ref _olderMeta).CheckpointPosition;

    /// <summary>Whose file it is, as given to <see cref="Create"/>.</summary>
    public UInt128 Identity => _newestMeta.Identity;

    /// <summary>Etag of the newest sealed batch.</summary>
    public UInt128 NewestEtag => NewestRoot.Etag;

    /// <summary>Etag that readers see. Any thread.</summary>
    public UInt128 PublishedEtag => Volatile.Read(ref _published).Etag;

    /// <summary>Memory of pages that are in no checkpoint yet, or not let go by readers. Any thread.</summary>
    public long ScratchBytes => _pool.Bytes;

    /// <summary>The part of <see cref="ScratchBytes"/> that only readers still need. Any thread; may be out of date.</summary>
    public long HeldScratchBytes => _retiredScratch.HeldBytes;

    /// <summary>Memory that scratch pages have from the system, in use or not. Any thread.</summary>
    public long ScratchReservedBytes => _pool.ReservedBytes;

    /// <summary>Bytes of memory that only readers still need, and of the file that readers and pins keep from being reused. Any thread; may be out of date.</summary>
    public long PinnedBytes => _retiredScratch.HeldBytes + Volatile.Read(ref _retiredFileBytes);

    /// <summary>Length of the file. Any thread.</summary>
    public long FileBytes => Volatile.Read(ref _fileBytes);

    internal IStorageFile File { get; }

    internal PageStoreOptions Options { get; }

    internal PageSpace Space { get; }

    internal FreeMap Free { get; }

    internal MetaPage NewestMeta => _newestMeta;

    /// <summary>The first batch whose root may reach what the next checkpoint places. While one is begun, which nothing else finishes: its executor.</summary>
    internal ulong FirstBatchToPlace => _batchCheckpointed + 1;

    private StoreRoot NewestRoot => _unpublished.Count > 0 ? _unpublished[^1].Root : _published;

    /// <summary>Creates an empty data file with two meta pages, durable with its name when this returns.</summary>
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

    /// <summary>Opens at the newest whole meta page. Never walks the trees.</summary>
    /// <exception cref="CorruptStoreException">No meta page is whole, the file is shorter than they say, or its free map is damaged.</exception>
    /// <exception cref="FormatVersionException">The file is of another version.</exception>
    public static PageStore Open(IFileSystem files, string path, PageStoreOptions options)
    {
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting, options.Direct));
        try
        {
            var first = ReadMeta(file, 0);
            var second = ReadMeta(file, 1);
            if (first is null && second is null)
                throw new CorruptStoreException($"'{path}': neither meta page is whole.");
            var (newest, older) = (first?.Revision ?? 0) > (second?.Revision ?? 0) ? (first!, second) : (second!, first);
            if (newest.FilePages < 2 || newest.FilePages > FreeMap.FilePagesMax)
                throw new CorruptStoreException($"'{path}': its meta page counts {newest.FilePages} pages, and a file has 2 to {FreeMap.FilePagesMax}.");
            if (newest.Trees.Any(tree => tree.Reference != 0 && !PageStructure.IsReference(tree.Reference, newest.FilePages)))
                throw new CorruptStoreException($"'{path}': its meta page refers to the root of a tree where no page is.");
            if (file.Length < newest.FilePages * Page.Bytes)
                throw new CorruptStoreException($"'{path}' has {file.Length} bytes, and its meta page says {newest.FilePages * Page.Bytes}.");
            // A torn meta page was being written as the power went: nothing but the newest is needed then, and that comes from the disk.
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

    /// <summary>Whether a snapshot is open. The writer, when no new ones can come.</summary>
    public bool HasReaders => _readers.Oldest() != ulong.MaxValue;

    /// <summary>Opens a batch on the newest state. One at a time.</summary>
    public WriteBatch Begin()
    {
        ReleaseRetired();
        _batch.Open(NewestRoot, ++_batchNumber, _emptyBatches.TryPop(out var changes) ? changes : new SealedBatch());
        return _batch;
    }

    /// <summary>Ends the batch that <see cref="Begin"/> gave: it is the newest state, not published yet. Etags rise.</summary>
    public void Seal(WriteBatch batch, UInt128 etag)
    {
        Invariant.Check(batch == _batch, $"A batch of another store is sealed.");
        Invariant.Check(etag > NewestRoot.Etag, $"A batch is sealed as {etag} after {NewestRoot.Etag}.");
        _unpublished.Add(batch.End(etag));
    }

    /// <summary>Ends the batch that <see cref="Begin"/> gave without a trace.</summary>
    public void Abort(WriteBatch batch)
    {
        Invariant.Check(batch == _batch, $"A batch of another store is aborted.");
        Discard(batch.EndUnsealed());
    }

    /// <summary>The newest sealed root with this etag or a lower one becomes what readers see.</summary>
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

    /// <summary>All sealed and not published roots vanish, with their scratch and with what they left.</summary>
    public void DropUnpublished()
    {
        Invariant.Check(!_batch.IsOpen, $"Unpublished roots are dropped while a batch is open.");
        foreach (var batch in _unpublished)
            Discard(batch);
        _unpublished.Clear();
    }

    /// <summary>
    /// Freezes the published root for a checkpoint. Null when nothing is new, or what is new is beyond <paramref name="etagMax"/>: then the root of now stays
    /// frozen, and the next call that allows its etag gets it.
    /// </summary>
    /// <param name="coverageOf">What the journal knows of a root's etag.</param>
    /// <param name="etagMax">The lesser of committed and durable here.</param>
    /// <param name="repeats">Also without anything new, if the older meta page would then cover more: so that the journal behind it can go.</param>
    public Checkpoint? BeginCheckpoint(Func<UInt128, CheckpointPosition> coverageOf, UInt128 etagMax, bool repeats = false)
    {
        Invariant.Check(_checkpoint is not { IsBegun: true }, $"A checkpoint begins before the last one is finished.");
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

    /// <summary>After <see cref="Checkpoint.Write"/>, between batches: the trees refer to the file, and the scratch pages are let go.</summary>
    public void FinishCheckpoint(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _checkpoint && checkpoint.Meta is not null && !_batch.IsOpen, $"A checkpoint is finished that was not written, or during a batch.");
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
        // The map is the writer's again; what was pending is free, and its last meta page overwritten.
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

    /// <summary>A checkpoint whose write met a full disk: nothing of it counts. The next one starts over.</summary>
    public void AbandonCheckpoint(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _checkpoint && checkpoint.MayBeAbandoned, $"A checkpoint is abandoned whose meta page may be durable.");
        Free.Restore();
        checkpoint.Left.AddRange(_left);
        _left = checkpoint.Left;
        var epoch = _readers.NextEpoch();
        foreach (var (page, left) in checkpoint.LeftSince)
            _retiredScratch.Add(new RetiredScratch(epoch, page, left));
        _checkpoint = null;
    }

    /// <summary>What is published now, for reading. Any thread; allocates nothing.</summary>
    /// <exception cref="SnapshotLimitException">As many are open as may be.</exception>
    public ReadSnapshot OpenSnapshot()
    {
        var slot = _readers.Enter(out var ticket);
        var root = Volatile.Read(ref _published);
        _readers.NameRoot(slot, root.Batch);
        return new ReadSnapshot(this, root, slot, ticket);
    }

    /// <summary>Keys of a tree as published. Any thread.</summary>
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
    /// Walks everything: each page of the file is reachable, free or pending, and only one of them; checksums, key order, counts. On the writer, with no batch
    /// open and no checkpoint begun.
    /// </summary>
    /// <exception cref="CorruptStoreException">Something is not so; the message says what.</exception>
    public void Verify()
    {
        Invariant.Check(!_batch.IsOpen && _checkpoint is not { IsBegun: true }, $"The store is verified during a batch or checkpoint.");
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

    /// <summary>The part of <see cref="Verify"/> that can go wrong in a file that was received whole and that nobody uses yet, to be taken in steps.</summary>
    public StoreWalk BeginWalk()
    {
        var walk = new StoreWalk(Space, Free, [_left, _pending]);
        walk.BeginPublished(_published.Trees, _newestMeta);
        return walk;
    }

    /// <summary>Closes the file. Snapshots must be closed, and the executors run nothing of this store. What is in no checkpoint is lost.</summary>
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
    /// Before anything that only an older meta page reaches is overwritten. The sync of the one that was found at the open may have failed under the process
    /// before: it is in the system's cache then, and a later sync does not bring it to the disk. Should it be torn here, the other one counts. On the
    /// checkpoint executor.
    /// </summary>
    internal void SyncNewestMeta()
    {
        if (_newestMetaIsSynced)
            return;
        WriteMeta(File, _newestMeta);
        File.Sync();
        _newestMetaIsSynced = true;
    }

    /// <summary>Grows the file to the wanted length, or the needed one when the disk has no more; gives its pages. On the checkpoint executor.</summary>
    internal long GrowFile(long pagesNeeded, long pagesWanted)
    {
        var pagesMax = Math.Min(Space.PagesMax, FreeMap.FilePagesMax);
        if (pagesNeeded > pagesMax)
            throw new StorageIoException("Grow", File.Path, $"{pagesNeeded} pages are more than the {pagesMax} that are mapped", isDiskFull: true);
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

    /// <summary>Gives back what an unpublished batch made; what it left is in use as before.</summary>
    private void Discard(SealedBatch batch)
    {
        foreach (var page in batch.Made)
            _pool.Return((byte*)page);
        Recycle(batch);
    }

    /// <summary>All open snapshots. The writer.</summary>
    internal void CollectReaders(List<ReaderSlots.Reader> readers) => _readers.Collect(readers);

    internal bool MustEnd(int slot, ulong ticket) => _readers.MustEnd(slot, ticket);

    internal void CloseSnapshot(int slot, ulong ticket) => _readers.Leave(slot, ticket);

    /// <summary>By a call that can fail: touching the map of a bad sector would end the process.</summary>
    internal void ReadFilePages(long first, Span<byte> destination)
    {
        Invariant.Check(destination.Length % Page.Bytes == 0 && (first * Page.Bytes) + destination.Length <= FileBytes, $"Pages from {first} on are beyond the file.");
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

    /// <summary>Null: torn, none, or one that the disk cannot read, which is as good as torn.</summary>
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

    /// <summary>Scratch pages that got a place, and that an unpublished batch left: it leaves the place instead.</summary>
    private static void LeavePlacedPages(SealedBatch batch, ulong batchFrozen)
    {
        foreach (var page in batch.RetiredScratch)
        {
            if (Page.Batch((byte*)page) <= batchFrozen)
                batch.RetiredFilePages.Add(PlacedRun((byte*)page));
        }
        batch.RetiredScratch.RemoveAll(page => Page.Batch((byte*)page) <= batchFrozen);
    }

    /// <summary>The root with references to the file, after they were put into all younger scratch pages that it reaches.</summary>
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
        // Bit 0 tells the mark of a page already visited from a place.
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
            // Readers load the reference first: with the one to the file they find its checksum.
            *(uint*)(child + sizeof(ulong)) = Page.Checksum(target);
            Volatile.Write(ref *(ulong*)child, Page.Placed(target));
        }
    }

    /// <summary>Takes back what no reader or pin can reach any more.</summary>
    private void ReleaseRetired()
    {
        if (_retiredScratch.IsEmpty && _retiredRuns.IsEmpty && _pinnedRuns.Count == 0)
            return;
        _readers.Collect(_present);
        _retiredScratch.Release(_present);
        var held = _retiredScratch.HeldBytes;
        // During a checkpoint's write the map is not the writer's, and of the runs it is not known then which readers have left them.
        if (_checkpoint is not { IsBegun: true })
        {
            ReleaseRuns();
            held += _retiredRuns.HeldBytes;
        }
        // Not what pins keep, or a checkpoint under way: no reader's end frees that.
        if (held > Options.PinnedBytesMax)
            EndReader();
    }

    /// <summary>Pages of the file that the newest checkpoint but one left. One run may be of several checkpoints, each of which placed a part of it.</summary>
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

    /// <summary>Pins first, and readers when those are gone: so no reader is ended for what a pin keeps. No later pin reaches it: that is of a later checkpoint.</summary>
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

    /// <summary>The oldest holds the most, or nearly so; when it is gone and that was not enough, the next one is.</summary>
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
