using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// A <see cref="PageStore"/> on a simulated disk with a model of its content: every sealed, published, checkpointed and read state is an immutable
/// dictionary. One thread runs all executors.
/// </summary>
internal sealed class ModelStore : IDisposable
{
    public static readonly TreeId[] Trees = [TreeId.Kv, TreeId.Expiry, TreeId.Sessions];
    public const string Path = "data";
    private readonly List<ModelState> _sealed = [];
    private readonly List<(ReadSnapshot Snapshot, ModelState State)> _readers = [];
    private ModelState _published;
    private ModelState _checkpointed;
    private ModelState _checkpointedBefore;
    private (Checkpoint Checkpoint, ModelState State, bool IsWritten)? _checkpoint;

    public ModelStore(PageStoreOptions? options = null)
    {
        Options = options ?? new PageStoreOptions { MapBytes = 1L << 30 };
        _published = _checkpointed = _checkpointedBefore = ModelState.Empty;
        Store = PageStore.Create(Disk, Path, Options, new byte[16]);
        Disk.SyncDirectory("");
    }

    public SimulatedDisk Disk { get; } = new();

    public PageStoreOptions Options { get; private set; }

    /// <summary>Whether each opening compresses values if the one before did not, and the other way around.</summary>
    public bool SwitchesCompression { get; init; }

    /// <summary>The shortest run of free pages whose space is given back after a checkpoint.</summary>
    public int HolePagesMin { get; set; } = FreeMap.HolePagesMin;

    public PageStore Store { get; private set; }

    public ModelState Newest => _sealed.Count > 0 ? _sealed[^1] : _published;

    public ModelState Published => _published;

    public bool IsCheckpointing => _checkpoint is not null;

    public bool IsCheckpointWritten => _checkpoint is { IsWritten: true };

    public int Readers => _readers.Count;

    public int Unpublished => _sealed.Count;

    /// <summary>Makes one batch of changes and seals it as the next etag, or aborts it.</summary>
    public void Batch(Action<ModelBatch> change, bool seal = true)
    {
        var batch = Store.Begin();
        var model = new ModelBatch(batch, Newest);
        change(model);
        var etag = Newest.Etag.Next();
        // Not every batch has a shard time of its own.
        if (etag.Change % 3 != 0)
            batch.ShardTime = model.ShardTime = (long)etag.Change * 1_000_003;
        if (!seal)
        {
            Store.Roots.Abort(batch);
            return;
        }
        Store.Roots.Seal(batch, etag);
        _sealed.Add(model.Result(etag));
        Assert.Equal(etag, Store.Roots.NewestEtag);
    }

    public void Publish(int count = int.MaxValue)
    {
        count = Math.Min(count, _sealed.Count);
        if (count == 0)
            return;
        _published = _sealed[count - 1];
        _sealed.RemoveRange(0, count);
        Store.Roots.Publish(_published.Etag);
        Assert.Equal(_published.Etag, Store.Roots.PublishedEtag);
        foreach (var tree in Trees)
            Assert.Equal((ulong)_published[tree].Count, Store.Roots.Count(tree));
        Assert.Equal((ulong)_published.Sets.Count, Store.Roots.Count(TreeId.Sets));
    }

    public void DropUnpublished()
    {
        _sealed.Clear();
        Store.Roots.DropUnpublished();
    }

    public void OpenReader() => _readers.Add((Store.Roots.OpenSnapshot(), _published));

    public void CheckReader(int index, Random random)
    {
        var (snapshot, state) = _readers[index];
        Assert.Equal(state.Etag, snapshot.Etag);
        state.CheckSome(snapshot, random);
    }

    public void CloseReader(int index, bool check = true)
    {
        var (snapshot, state) = _readers[index];
        if (check)
            state.CheckAll(snapshot);
        snapshot.Dispose();
        _readers.RemoveAt(index);
    }

    public bool BeginCheckpoint()
    {
        var checkpoint = Store.BeginCheckpoint(CoverageOf, Etag.MaxValue);
        if (checkpoint is null)
            return false;
        _checkpoint = (checkpoint, _published, false);
        return true;
    }

    public void WriteCheckpoint()
    {
        var (checkpoint, state, _) = _checkpoint!.Value;
        checkpoint.Write();
        _checkpoint = (checkpoint, state, true);
    }

    /// <summary>Writes the checkpoint while power fails at a call to the disk. False if it needed fewer calls.</summary>
    public bool CrashWritingCheckpoint(int call)
    {
        Disk.CrashAtCall = Disk.Calls + call;
        try
        {
            WriteCheckpoint();
            return false;
        }
        catch (SimulatedCrashException)
        {
            return true;
        }
        finally
        {
            Disk.CrashAtCall = 0;
        }
    }

    public void FinishCheckpoint(bool givesBack = true)
    {
        while (!FinishStep())
        {
        }
        while (givesBack && Store.TryChooseSurplus(out var part, HolePagesMin))
            GiveBack(part);
    }

    /// <summary>Takes one step of the checkpoint's end. Anything may happen between two of them. After the last one all pages are accounted for.</summary>
    public bool FinishStep()
    {
        var (checkpoint, state, _) = _checkpoint!.Value;
        if (!Store.FinishStep(checkpoint))
            return false;
        _checkpoint = null;
        foreach (var root in Store.Roots.Unpublished.Select(batch => batch.Root).Append(Store.Roots.Published))
            CheckPlaced(root, checkpoint.Root.Batch);
        // A checkpoint that takes both meta pages leaves no state before it.
        (_checkpointedBefore, _checkpointed) = (checkpoint.MetaAgain is null ? _checkpointed : state, state);
        Assert.Equal(CoverageOf(state.Etag), Store.Covered);
        Assert.Equal(_checkpointedBefore.Etag, Store.CoveredByOlderMeta.Etag);
        Store.Verify();
        return true;
    }

    /// <summary>Completes the checkpoint in progress.</summary>
    public void EndCheckpoint()
    {
        if (IsCheckpointing && !IsCheckpointWritten)
            WriteCheckpoint();
        if (IsCheckpointing)
            FinishCheckpoint();
    }

    public void AbandonCheckpoint()
    {
        Store.AbandonCheckpoint(_checkpoint!.Value.Checkpoint);
        _checkpoint = null;
    }

    public void GiveBack(FilePart part)
    {
        if (part.Bytes > 0)
            Store.FileSpace.GiveBack(part);
    }

    public void Checkpoint()
    {
        if (!BeginCheckpoint())
            return;
        WriteCheckpoint();
        FinishCheckpoint();
    }

    /// <summary>Closes the store or cuts its power, and opens it again. It must hold the newest checkpoint.</summary>
    public void Reopen(UnsyncedWrites? crash = null, int seed = 0)
    {
        CloseReaders();
        var written = _checkpoint is { IsWritten: true } done ? done.State : null;
        _checkpoint = null;
        _sealed.Clear();
        Store.Dispose();
        if (crash is { } unsynced)
            Disk.Restart(unsynced, seed);
        if (SwitchesCompression)
            Options = Options with { CompressesValues = !Options.CompressesValues };
        Store = PageStore.Open(Disk, Path, Options);
        if (written is not null)
            (_checkpointedBefore, _checkpointed) = (_checkpointed, written);
        Adopt(_checkpointed);
    }

    /// <summary>Opens after a crash in the middle of a checkpoint, which either happened or did not.</summary>
    public void ReopenAfterCrashInCheckpoint(UnsyncedWrites unsynced, int seed)
    {
        CloseReaders();
        var attempted = _checkpoint?.State;
        _checkpoint = null;
        _sealed.Clear();
        Store.Dispose();
        Disk.Restart(unsynced, seed);
        Store = PageStore.Open(Disk, Path, Options);
        if (attempted is not null && Store.Covered.Etag == attempted.Etag)
            (_checkpointedBefore, _checkpointed) = (_checkpointed, attempted);
        Adopt(_checkpointed);
    }

    public void CheckPublished()
    {
        using var snapshot = Store.Roots.OpenSnapshot();
        Assert.Equal(_published.Etag, snapshot.Etag);
        _published.CheckAll(snapshot);
    }

    /// <summary>Compares the numbers of keys in some ranges: those of what is published for readers, and those of what is not for the writer.</summary>
    public void CheckCounts(KeyProfile keys, Random random)
    {
        using (var snapshot = Store.Roots.OpenSnapshot())
            _published.CheckCounts(snapshot, random, ranges: 4);
        Batch(
            batch =>
            {
                for (var ranges = 0; ranges < 4; ranges++)
                    batch.CountSomeRange(Trees[random.Next(Trees.Length)], keys, random);
            },
            seal: false);
    }

    /// <summary>Compares what is published and verifies the pages: as they are, after a checkpoint, and after a reopening.</summary>
    public void CheckEverywhere()
    {
        Check();
        Checkpoint();
        Check();
        Reopen();
        Check();

        void Check()
        {
            CheckPublished();
            Store.Verify();
        }
    }

    public void Dispose()
    {
        CloseReaders();
        Store.Dispose();
        Disk.Dispose();
    }

    /// <summary>A root reaches in memory only pages that were made after this batch.</summary>
    private unsafe void CheckPlaced(StoreRoot root, ulong batchPlaced)
    {
        foreach (var tree in root.Trees)
            Check(tree.Link.Reference);

        void Check(PageRef reference)
        {
            if (!reference.IsScratch)
                return;
            var page = Store.Space.Locate(reference);
            Assert.True(
                Page.Batch(page) > batchPlaced, $"The root of batch {root.Batch} reaches a page of batch {Page.Batch(page)} in memory, which is in the file.");
            for (var i = 0; i < Page.Count(page) && Page.Type(page) is PageType.Branch or PageType.Leaf or PageType.Delta; i++)
            {
                var child = TreePage.Reference(page, i);
                if (child is not null)
                    Check(child->Reference);
            }
        }
    }

    private static CheckpointPosition CoverageOf(Etag etag) =>
        new(etag, new JournalPosition(etag.Change + 7, (long)etag.Change * 4096), (uint)etag.Change * 2654435761);

    private void Adopt(ModelState state)
    {
        _published = state;
        Assert.Equal(state.Etag, Store.Covered.Etag);
        Assert.Equal(state.Etag, Store.Roots.PublishedEtag);
        Assert.Equal(state.Etag, Store.Roots.NewestEtag);
        Assert.Equal(state.ShardTime, Store.Roots.Published.ShardTime);
        if (state.Etag != Etag.None)
            Assert.Equal(CoverageOf(state.Etag), Store.Covered);
    }

    private void CloseReaders()
    {
        foreach (var (snapshot, _) in _readers)
            snapshot.Dispose();
        _readers.Clear();
    }
}
