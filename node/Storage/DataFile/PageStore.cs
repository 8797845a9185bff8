using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// A data file: copy-on-write trees in memory and their checkpoints on disk. Pins, counts and sizes are available on any thread,
/// <see cref="Checkpoint.Write"/> on the checkpoint executor; everything else is called on the shard's writer only. It has no threads or clock of its own,
/// and no lock. An exception other than a full disk stops the engine.
/// </summary>
/// <remarks>
/// This class opens batches and orders the steps of a checkpoint; the parts own their state. Callers use <see cref="Roots"/> directly. Where pages go that
/// are not in use any more is in <see cref="LeavingPages"/>.
/// </remarks>
internal sealed class PageStore : IDisposable
{
    /// <summary>Spare pages that are not worth giving back.</summary>
    private const long SparePagesMin = (4 << 20) / Page.Bytes;
    private const int SparePart = 10;

    private readonly ScratchPool _pool;
    private readonly LeafDeltas _deltas;
    private readonly WriteBatch _batch;
    private readonly CheckpointPins _pins;
    private readonly PageReclamation _reclamation;
    private readonly LeavingPages _leaving;
    private ulong _batchNumber;

    private PageStore(IStorageFile file, PageStoreOptions options, MetaPages meta)
    {
        (File, Options, Meta) = (file, options, meta);
        Space = new PageSpace(file, options.MapBytes);
        _pool = new ScratchPool(options.FreeScratchBytesMax);
        Free = FreeMap.Load(Space, meta.Newest, isAlone: options.DeltaBytesMax > 0 && meta.AreOfOneCheckpoint);
        var readers = new ReaderSlots(options.SnapshotsMax);
        _pins = new CheckpointPins(meta.Newest, Free.UsedRuns());
        _reclamation = new PageReclamation(readers, _pins, _pool, Free, options);
        _leaving = new LeavingPages(_reclamation, Free.PendingRuns());
        _deltas = new LeafDeltas(Space, _pool, options.DeltaBytesMax, options.StaysWhole);
        _batch = new WriteBatch(Space, _pool, _deltas, options.DividesValues, options.CompressesValues ? new ValueCompression() : null);
        var opened = new StoreRoot(meta.Newest.CheckpointPosition.Etag, meta.Newest.ShardTime, meta.Newest.WallTime, 0, meta.Newest.Trees);
        Roots = new PublishedRoots(Space, readers, _pool, _batch, _leaving, opened);
        FileSpace = new FileSpace(file, Space);
    }

    /// <summary>The published state, and the sealed ones behind it.</summary>
    public PublishedRoots Roots { get; }

    /// <summary>What the newest checkpoint covers. Any thread.</summary>
    public CheckpointPosition Covered => Meta.Newest.CheckpointPosition;

    /// <summary>What the older meta page covers. The journal is needed from there on (S5). Any thread.</summary>
    public CheckpointPosition CoveredByOlderMeta => Meta.Older.CheckpointPosition;

    /// <summary>Identifies the replica whose file this is, as passed to <see cref="Create"/>.</summary>
    public UInt128 Identity => Meta.Newest.Identity;

    /// <summary>How the newest checkpoint was written; all zero for one before the open. Writer.</summary>
    public WriteCounts CheckpointCounts { get; private set; }

    /// <summary>Memory of pages that are in no checkpoint yet or that readers still need. Any thread.</summary>
    public long ScratchBytes => _pool.Bytes - _reclamation.PlacedBytes;

    /// <summary>Bytes of scratch memory whose pages a checkpoint has placed, and which is returned in steps. Any thread.</summary>
    public long PlacedBytes => _reclamation.PlacedBytes;

    /// <summary>The part of <see cref="ScratchBytes"/> that only readers still need. Any thread; may be out of date.</summary>
    public long HeldScratchBytes => _reclamation.HeldScratchBytes;

    /// <summary>Bytes of changed pages, which the next checkpoint writes. Any thread; may be out of date.</summary>
    public long ChangedBytes => ScratchBytes - HeldScratchBytes;

    /// <summary>Bytes that the next checkpoint writes to the file at most: of a delta a page. Any thread; may be out of date.</summary>
    public long ChangedFileBytes => ChangedBytes + _pool.BytesOfFolds - _reclamation.PlacedFolds - _reclamation.HeldFolds;

    /// <summary>
    /// The part of <see cref="ChangedBytes"/> that is in runs, which are large values. Less while other pages are held by readers, or wait to be returned. Any
    /// thread; may be out of date.
    /// </summary>
    public long ChangedRunBytes => Math.Max(0, _pool.RunBytes - PlacedBytes - HeldScratchBytes);

    /// <summary>Bytes of all runs that were made so far, also of those that are gone. Any thread; may be out of date.</summary>
    public long RunBytesMade => _pool.RunBytesTaken;

    /// <summary>Bytes of memory that the checkpoint in progress takes for lists of deltas, which are many and small. Writer.</summary>
    public long CheckpointListBytes => _leaving.Checkpoint?.ListBytes ?? 0;

    /// <summary>Memory that the system has given for scratch pages, in use or not. Any thread.</summary>
    public long ScratchReservedBytes => _pool.ReservedBytes;

    /// <inheritdoc cref="ScratchPool.HoleBytes"/>
    public long ScratchHoleBytes => _pool.HoleBytes;

    /// <inheritdoc cref="ScratchPool.KeepEmpty"/>
    public void KeepFreePages(long bytesMax) => _pool.KeepEmpty(bytesMax);

    /// <summary>Returns the memory of retired pages that nobody needs any more, and of all free ones, to the system. Not during a batch.</summary>
    public void ReturnFreePages()
    {
        ReleaseRetired();
        _pool.ReturnFree();
    }

    /// <summary>The part of <see cref="HeldScratchBytes"/> that only digests still need. Any thread; may be out of date.</summary>
    public long DigestScratchBytes => _reclamation.DigestScratchBytes;

    /// <summary>
    /// Whether ended snapshots that nobody closes leave room for another one: what callers hold is less than twice their bound. Any thread; may be out of date.
    /// </summary>
    public bool HasRoomForSnapshots => HeldScratchBytes - DigestScratchBytes <= 2 * Math.Min(_reclamation.HeldScratchBytesMax, long.MaxValue / 2);

    /// <summary>
    /// Sets the bytes of memory that snapshots may hold, besides <see cref="PageStoreOptions.PinnedBytesMax"/> and
    /// <see cref="PageStoreOptions.DigestPinnedBytesMax"/>. Above that the one that holds most must end.
    /// </summary>
    public void BoundHeldScratch(long callersBytesMax, long digestBytesMax) =>
        (_reclamation.HeldScratchBytesMax, _reclamation.DigestScratchBytesMax) = (callersBytesMax, digestBytesMax);

    /// <summary>
    /// Bytes of memory that only readers still need, plus bytes of the file that readers and pins keep from being reused. Any thread; may be out of date.
    /// </summary>
    public long PinnedBytes => _reclamation.PinnedBytes;

    /// <summary>Whether <see cref="ReleaseSome"/> should be called, because a checkpoint or a reader has left much to return. Writer.</summary>
    public bool HasMoreToRelease => _reclamation.HasMore(Releasable) || _pool.HasSurplus;

    /// <summary>Length of the file. Any thread.</summary>
    public long FileBytes => FileSpace.Bytes;

    /// <inheritdoc cref="IStorageFile.AllocatedBytes"/>
    public long AllocatedBytes => File.AllocatedBytes;

    /// <summary>Bytes of the file that the next checkpoint may take. Writer, while no checkpoint is in progress.</summary>
    public long ReusableBytes => FileBytes - ((Free.FilePages - Free.ReusablePages) * Page.Bytes);

    /// <summary>
    /// Whether so much of the file's space is not in use that a quiescent store should give it back: a tenth of what is in use, and at least 4 MiB, since some
    /// stays reusable anyway. Writer, while no checkpoint is in progress.
    /// </summary>
    public bool HasMuchSpare => Free.SparePages > SparePagesMax;

    /// <summary>Whether as much of it cannot be given back yet, because readers or pins may reach it. As for <see cref="HasMuchSpare"/>.</summary>
    public bool IsMuchSpareHeld => Free.SparePages - Free.ReusablePages > SparePagesMax;

    private long SparePagesMax => Math.Max(SparePagesMin, Free.UsedPages / SparePart);

    internal IStorageFile File { get; }

    internal PageStoreOptions Options { get; }

    internal PageSpace Space { get; }

    internal FileSpace FileSpace { get; }

    internal FreeMap Free { get; }

    internal MetaPages Meta { get; }

    private Releasable Releasable => _leaving.IsFinishing ? Releasable.Runs : _leaving.Checkpoint is { IsBegun: true } ? Releasable.Scratch : Releasable.Both;

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

    /// <summary>Opens a batch on the newest state. Only one at a time. <see cref="PublishedRoots"/> closes it.</summary>
    public WriteBatch Begin()
    {
        ReleaseRetired();
        _deltas.BatchToFold = (_leaving.Checkpoint?.Root ?? Roots.Published).Batch;
        _batch.Open(Roots.Newest, ++_batchNumber, Roots.NextChanges());
        return _batch;
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
        var checkpoint = _leaving.Checkpoint;
        Invariant.Check(checkpoint is not { IsBegun: true }, $"A checkpoint was begun before the last one was finished.");
        if (checkpoint is null && Roots.PublishedEtag == Covered.Etag && !(repeats && CoveredByOlderMeta.Etag < Covered.Etag))
            return null;
        checkpoint ??= _leaving.Freeze(this, Roots.Published);
        if (checkpoint.Etag > etagMax)
            return null;
        checkpoint.Begin(coverageOf(checkpoint.Etag));
        return checkpoint;
    }

    /// <summary>Takes all steps at once.</summary>
    /// <inheritdoc cref="FinishStep"/>
    public void FinishCheckpoint(Checkpoint checkpoint)
    {
        while (!FinishStep(checkpoint))
        {
        }
    }

    /// <summary>
    /// Called after <see cref="Checkpoint.Write"/> until it returns true, with batches, publications and drops in between, but not during a batch. Makes
    /// the trees refer to the file; with the last step the checkpoint is the newest, and its scratch pages are retired.
    /// </summary>
    public bool FinishStep(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _leaving.Checkpoint && checkpoint.Meta is not null && !_batch.IsOpen, $"A checkpoint was finished before it was written, "
            + $"or during a batch.");
        if (!_leaving.IsFinishing)
        {
            // The map belongs to the writer again.
            Free.Keep();
            var swap = new ReferenceSwap(Space, checkpoint.Root.Batch, _batchNumber, checkpoint.Meta.Revision, checkpoint.Folded);
            _leaving.BeginFinish(Roots.BeginSwap(swap), Meta.Newest.Revision);
        }
        if (_batch.Swap is { } running && running.Step(Roots.Unpublished, Options.StepPages) && _leaving.FinishStep(Options.StepPages))
        {
            _leaving.EndSwap(Roots.EndSwap(), _batchNumber);
            Meta.Advance(checkpoint.Meta);
            if (checkpoint.MetaAgain is { } again)
                Meta.Advance(again);
            // Before pages of the checkpoint before it are retired: a pin of that one, opened in between, would find them used again.
            _pins.Advance(Meta.Newest, checkpoint.UsedRuns);
        }
        var isDone = _batch.Swap is null && _leaving.RetireOlderStep(Options.StepPages);
        if (isDone)
        {
            _leaving.EndFinish();
            CheckpointCounts = checkpoint.Counts;
        }
        ReleaseRetired();
        return isDone;
    }

    /// <summary>
    /// Returns some of what nothing reaches any more, like the memory of finished checkpoints, as every batch does when it begins; true while there is more.
    /// Not during a batch.
    /// </summary>
    public bool ReleaseSome()
    {
        ReleaseRetired();
        return HasMoreToRelease;
    }

    /// <inheritdoc cref="FileSpace.TryChooseSurplus"/>
    public bool TryChooseSurplus(out FilePart part, int holePagesMin = FreeMap.HolePagesMin) =>
        FileSpace.TryChooseSurplus(Free, Math.Max(Meta.Newest.FilePages, Meta.Older.FilePages), holePagesMin, out part);

    /// <summary>Takes all steps at once.</summary>
    /// <inheritdoc cref="AbandonStep"/>
    public void AbandonCheckpoint(Checkpoint checkpoint)
    {
        while (!AbandonStep(checkpoint))
        {
        }
    }

    /// <summary>
    /// Abandons a checkpoint whose write found the disk full. Nothing of it counts, and the next one starts over. Called until it returns true, with batches
    /// and publications in between, but not during a batch.
    /// </summary>
    public bool AbandonStep(Checkpoint checkpoint)
    {
        Invariant.Check(checkpoint == _leaving.Checkpoint && checkpoint.MayBeAbandoned && !_batch.IsOpen, $"A checkpoint was abandoned although its meta page "
            + $"may be durable, or during a batch.");
        // A write that found the disk full has restored the map already. If no write was begun, the map is restored here.
        Free.Restore();
        return _leaving.AbandonStep(Roots.Readers.NextEpoch(), Options.StepPages);
    }

    /// <summary>Pins the newest checkpoint. Any thread.</summary>
    public CheckpointPin Pin() => _pins.Pin(this);

    /// <summary>
    /// Checks everything: each page of the file is exactly one of reachable, free or pending, and checksums, key order and counts are right. Writer, with
    /// no batch open and no checkpoint in progress.
    /// </summary>
    /// <exception cref="CorruptStoreException">A check failed; the message says which.</exception>
    public void Verify()
    {
        Invariant.Check(!_batch.IsOpen && _leaving.Checkpoint is not { IsBegun: true }, $"The store was verified during a batch or checkpoint.");
        var walk = new StoreWalk(Space, Free, [.. _leaving.Runs, [.. _reclamation.Runs]]);
        walk.CheckPublished(Roots.Published, Meta.Newest);
        walk.CheckProtected(Meta.Newest.Trees, "newest checkpoint");
        walk.CheckProtected(Meta.Older.Trees, "older checkpoint");
        foreach (var batch in Roots.Unpublished)
            walk.CheckProtected(batch.Root.Trees, "unpublished root");
    }

    /// <summary>Begins the part of <see cref="Verify"/> that can fail in a file that was received whole and is not in use yet, to be done in steps.</summary>
    public StoreWalk BeginWalk()
    {
        var walk = new StoreWalk(Space, Free, [.. _leaving.Runs]);
        walk.BeginPublished(Roots.Published.Trees, Meta.Newest);
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

    /// <summary>Reads with a call that can fail. Accessing a bad sector through the mapping would crash the process.</summary>
    internal void ReadFilePages(long first, Span<byte> destination)
    {
        Invariant.Check(destination.Length % Page.Bytes == 0 && (first * Page.Bytes) + destination.Length <= FileBytes, $"Pages from {first} on are beyond the "
            + $"end of the file, or not read as whole pages.");
        if (File.Read(destination, first * Page.Bytes) < destination.Length)
            throw new CorruptStoreException($"'{File.Path}' ends before page {first + (destination.Length / Page.Bytes)}.");
    }

    private void ReleaseRetired()
    {
        _reclamation.Release(Releasable);
        _pool.GiveBackSome();
    }
}
