using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The states of a data file's trees from the published one to the newest, each as a root: the state that readers see, and behind it the sealed batches that
/// are not published yet. Writer only; snapshots, the published etag and counts on any thread. An exception other than
/// <see cref="SnapshotLimitException"/> stops the engine.
/// </summary>
internal sealed unsafe class PublishedRoots
{
    private readonly ScratchPool _pool;
    private readonly WriteBatch _batch;
    private readonly LeavingPages _leaving;

    /// <summary>With increasing etags above the published one, each built on the state before it.</summary>
    private readonly List<SealedBatch> _unpublished = [];
    private readonly Stack<SealedBatch> _emptyBatches = new();
    private StoreRoot _published;

    /// <param name="space">Resolves the references of the roots.</param>
    /// <param name="readers">Who reads them.</param>
    /// <param name="pool">Gets the pages of batches that are discarded.</param>
    /// <param name="batch">The store's only batch.</param>
    /// <param name="leaving">Gets what published batches have retired.</param>
    /// <param name="published">The state at the open.</param>
    public PublishedRoots(PageSpace space, ReaderSlots readers, ScratchPool pool, WriteBatch batch, LeavingPages leaving, StoreRoot published)
    {
        (Space, Readers, _pool, _batch, _leaving) = (space, readers, pool, batch, leaving);
        _published = published;
    }

    /// <summary>Resolves the references of the roots. Any thread.</summary>
    public PageSpace Space { get; }

    /// <summary>Who has a snapshot open. Any thread.</summary>
    public ReaderSlots Readers { get; }

    /// <summary>The state that readers see. Its etag never decreases, and what is read in it stays as it is (S1). Any thread.</summary>
    public StoreRoot Published => Volatile.Read(ref _published);

    /// <summary>The state after the newest sealed batch.</summary>
    public StoreRoot Newest => _unpublished.Count > 0 ? _unpublished[^1].Root : _published;

    /// <summary>The sealed batches that are not published, oldest first.</summary>
    public IReadOnlyList<SealedBatch> Unpublished => _unpublished;

    /// <summary>Etag that readers see. Any thread.</summary>
    public Etag PublishedEtag => Published.Etag;

    /// <summary>Etag of the newest sealed batch.</summary>
    public Etag NewestEtag => Newest.Etag;

    /// <summary>Number of keys of a tree in the published state. Any thread.</summary>
    public ulong Count(TreeId tree) => Published.Trees[(int)tree].Count;

    /// <summary>Opens a snapshot of the published state for a caller. Any thread; allocates nothing.</summary>
    /// <exception cref="SnapshotLimitException">The limit of open snapshots is reached.</exception>
    public ReadSnapshot OpenSnapshot() => OpenSnapshot(forDigest: false);

    /// <summary>The same, or one of the store's own for a digest, which has a bound of its own.</summary>
    /// <inheritdoc cref="OpenSnapshot()" path="/exception"/>
    public ReadSnapshot OpenSnapshot(bool forDigest)
    {
        var slot = Readers.Enter(out var ticket);
        var root = Published;
        Readers.NameRoot(slot, root.Batch, forDigest);
        return new ReadSnapshot(this, root, slot, ticket);
    }

    /// <summary>An empty list for the changes of the next batch.</summary>
    public SealedBatch NextChanges() => _emptyBatches.TryPop(out var changes) ? changes : new SealedBatch();

    /// <summary>Closes the batch that <see cref="PageStore.Begin"/> returned. It becomes the newest state, unpublished. Etags must increase.</summary>
    public void Seal(WriteBatch batch, Etag etag)
    {
        Invariant.Check(batch == _batch, $"A batch of another store was sealed.");
        Invariant.Check(etag > NewestEtag, $"A batch was sealed as {etag}, which is not after {NewestEtag}.");
        _unpublished.Add(batch.End(etag));
    }

    /// <summary>Closes the batch that <see cref="PageStore.Begin"/> returned and discards its changes.</summary>
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
        var epoch = Readers.NextEpoch();
        for (var i = 0; i < count; i++)
        {
            _leaving.Add(_unpublished[i], epoch);
            Recycle(_unpublished[i]);
        }
        _unpublished.RemoveRange(0, count);
    }

    /// <summary>Drops all sealed roots that are not published, with their scratch pages. The pages that they retired are in use as before.</summary>
    public void DropUnpublished()
    {
        Invariant.Check(!_batch.IsOpen, $"Unpublished roots were dropped while a batch was open.");
        _batch.Swap?.Forget(_published.Batch);
        foreach (var batch in _unpublished)
            Discard(batch);
        _unpublished.Clear();
    }

    /// <summary>
    /// Begins to replace references to scratch pages by references to the file, where a checkpoint has written them; this step does so in the roots. Not
    /// during a batch. Returns the epoch that this ended.
    /// </summary>
    public ulong BeginSwap(ReferenceSwap swap)
    {
        foreach (var batch in _unpublished)
            batch.Root = swap.Begin(batch.Root);
        Volatile.Write(ref _published, swap.Begin(_published));
        _batch.Swap = swap;
        return Readers.NextEpoch();
    }

    /// <summary>Ends it. Returns the last epoch whose readers may use the references that were replaced.</summary>
    public ulong EndSwap()
    {
        _batch.Swap = null;
        return Readers.NextEpoch();
    }

    private void Discard(SealedBatch batch)
    {
        foreach (var page in batch.Made)
            _pool.Return((byte*)page);
        Recycle(batch);
    }

    private void Recycle(SealedBatch batch)
    {
        batch.Clear();
        _emptyBatches.Push(batch);
    }
}
