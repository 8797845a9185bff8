using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>Changed leaves that are held as deltas of their pages in the file.</summary>
public sealed unsafe class DeltaTests
{
    private const int Keys = 4_000;
    private static readonly PageStoreOptions _options = new() { MapBytes = 1L << 30, DeltaBytesMax = ScratchPool.BlockBytesMax, StaysWhole = null };

    [Fact]
    public void Put_IntoEachLeaf_TakesABlockAndNoPage()
    {
        using var store = Checkpointed();
        ReleaseAll(store);
        var before = store.Store.ScratchBytes;
        Put(store, step: 50);
        // A path of branches, and a delta of one or two entries for each leaf.
        var bytes = store.Store.ScratchBytes - before;
        var deltas = DeltasOf(store).Count;
        Assert.True(deltas > Keys / 100, $"There are {deltas} deltas.");
        Assert.True(bytes <= (deltas * 512) + (4 * Page.Bytes), $"{deltas} leaves with a new value take {bytes} bytes.");
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>
    /// The checkpoint folds the put into a page, which becomes the base of the younger delta. That one says that the key was deleted, although the first base
    /// does not have it.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Key_FoldedAndDeletedMeanwhile_StaysDeleted(bool isDeletedBefore)
    {
        using var store = Checkpointed();
        byte[] key = [.. KeyOf(77), 1];
        store.Batch(batch => batch.Put(TreeId.Kv, key, [1, 2, 3]));
        store.Publish();
        // It does not matter whether the younger delta was made before the freeze: then the checkpoint takes the published state, which is older.
        if (isDeletedBefore)
            store.Batch(batch => batch.Delete(TreeId.Kv, key));
        Assert.True(store.BeginCheckpoint());
        if (!isDeletedBefore)
            store.Batch(batch => batch.Delete(TreeId.Kv, key));
        store.WriteCheckpoint();
        store.FinishCheckpoint();
        store.Publish();
        store.CheckPublished();
        store.Batch(batch => batch.Put(TreeId.Kv, KeyOf(78), [4]));
        store.Publish();
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>
    /// A key that got its old value back meanwhile has another one in the page into which the checkpoint has folded the change. It does not matter whether the
    /// younger delta is made of the older one or of the whole leaf, as here if another key comes with it.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Value_FoldedAndTakenBackMeanwhile_IsTheOldOne(bool isOfWholeLeaf)
    {
        using var store = Checkpointed();
        var before = store.Published[TreeId.Kv][KeyOf(77)];
        store.Batch(batch => batch.Put(TreeId.Kv, KeyOf(77), [1, 2, 3]));
        store.Publish();
        Assert.True(store.BeginCheckpoint());
        store.Batch(batch =>
        {
            batch.Put(TreeId.Kv, KeyOf(77), before);
            if (isOfWholeLeaf)
                batch.Put(TreeId.Kv, [.. KeyOf(78), 1], [4]);
        });
        store.Publish();
        store.WriteCheckpoint();
        store.FinishCheckpoint();
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>
    /// Keys of which a delta says what its base says go with the next one, unless a checkpoint folds an older one that says something else, or may freeze it
    /// before the predecessor is published.
    /// </summary>
    [Theory]
    [InlineData(false, false, 1)]
    [InlineData(true, false, 3)]
    [InlineData(false, true, 3)]
    public void Key_WithItsOldValueAgain_IsLeftOutWhenNoOlderDeltaCanBeFolded(bool isFrozen, bool isUnpublished, int expected)
    {
        using var store = Checkpointed();
        var before = store.Published[TreeId.Kv][KeyOf(77)];
        byte[] added = [.. KeyOf(77), 1];
        store.Batch(batch =>
        {
            batch.Put(TreeId.Kv, KeyOf(77), [1]);
            batch.Put(TreeId.Kv, added, [2]);
        });
        store.Publish();
        if (isFrozen)
            Assert.True(store.BeginCheckpoint());
        store.Batch(batch =>
        {
            batch.Put(TreeId.Kv, KeyOf(77), before);
            batch.Delete(TreeId.Kv, added);
        });
        if (!isUnpublished)
            store.Publish();
        // With a new key the delta is made of the whole leaf.
        store.Batch(batch => batch.Put(TreeId.Kv, [.. KeyOf(78), 1], [3]));
        if (isUnpublished)
            Assert.True(store.BeginCheckpoint());
        store.Publish();
        Assert.Equal(expected, Page.Count((byte*)Assert.Single(DeltasOf(store))));
        Assert.True(store.IsCheckpointing || store.BeginCheckpoint());
        store.EndCheckpoint();
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>A value that takes the place of another one goes into the delta, whatever its length. No leaf is copied for it.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    [InlineData(-1)]
    public void Values_OfKeysThatLeavesHave_TakeNoCopiesOfLeaves(int growth)
    {
        using var store = Checkpointed();
        for (var round = 0; round < 3; round++)
        {
            store.Batch(batch =>
            {
                var before = store.Store.ScratchBytes;
                for (var key = 0; key < Keys; key += 200)
                    batch.Put(TreeId.Kv, KeyOf(key), new byte[100 + (growth * round)]);
                // The root, and a block for each leaf.
                Assert.InRange(store.Store.ScratchBytes - before, Keys / 200 * 256, Page.Bytes + (Keys / 200 * 256));
                // The batch reads what it has put, and may put it again.
                for (var key = 0; key < Keys; key += 200)
                    batch.Put(TreeId.Kv, KeyOf(key), [.. Enumerable.Repeat((byte)round, 100 + (growth * round))]);
                Assert.InRange(store.Store.ScratchBytes - before, 0, Page.Bytes + (Keys / 200 * 256));
            });
            store.Publish();
            Assert.All(DeltasOf(store), static delta => Assert.Equal(1, Page.Count((byte*)delta)));
            store.CheckPublished();
        }
        Assert.Equal(Keys / 200, DeltasOf(store).Count);
        store.CheckEverywhere();
    }

    /// <summary>The leaves are full, so after some values that are longer than those before them, they are split.</summary>
    [Fact]
    public void Values_ThatGrowInDeltas_FindRoom()
    {
        using var store = Checkpointed();
        for (var round = 0; round < 40; round++)
        {
            // One for most leaves.
            store.Batch(batch =>
            {
                for (var key = round; key < Keys; key += 80)
                    batch.Put(TreeId.Kv, KeyOf(key), new byte[102]);
            });
            store.Publish();
        }
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>A batch that puts much of a leaf copies it in the end, and what it has put before that is in the copy.</summary>
    [Fact]
    public void Values_OfAllKeysOfALeaf_AreInItsCopy()
    {
        using var store = Checkpointed();
        for (var round = 0; round < 2; round++)
        {
            store.Batch(batch =>
            {
                for (var key = 1_000; key < 1_200; key++)
                    batch.Put(TreeId.Kv, KeyOf(key), [.. Enumerable.Repeat((byte)round, 100)]);
            });
            store.Publish();
            store.CheckPublished();
        }
        store.CheckEverywhere();
    }

    [Fact]
    public void DeletedKey_InADeltaThatGetsValues_StaysDeleted()
    {
        using var store = Checkpointed();
        store.Batch(batch => batch.Delete(TreeId.Kv, KeyOf(77)));
        store.Publish();
        store.Batch(batch =>
        {
            var before = store.Store.ScratchBytes;
            batch.Put(TreeId.Kv, KeyOf(78), new byte[100]);
            Assert.InRange(store.Store.ScratchBytes - before, 0, Page.Bytes + 512);
        });
        store.Publish();
        Assert.Equal(2, Page.Count((byte*)Assert.Single(DeltasOf(store))));
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>
    /// A batch puts values into a delta, and then deletes a key from it, for which it copies the whole leaf. The delta before all that, which a checkpoint
    /// folds, has the key.
    /// </summary>
    [Fact]
    public void Key_FoldedAndDeletedByABatchThatHasPutValuesBeside_StaysDeleted()
    {
        using var store = Checkpointed();
        byte[] key = [.. KeyOf(77), 1];
        store.Batch(batch => batch.Put(TreeId.Kv, key, [1, 2, 3]));
        store.Publish();
        Assert.True(store.BeginCheckpoint());
        store.Batch(batch =>
        {
            batch.Put(TreeId.Kv, KeyOf(78), new byte[100]);
            batch.Put(TreeId.Kv, KeyOf(79), new byte[100]);
            batch.Delete(TreeId.Kv, key);
        });
        store.WriteCheckpoint();
        store.FinishCheckpoint();
        store.Publish();
        store.CheckPublished();
        store.CheckEverywhere();
    }

    /// <summary>The base of a delta that a batch makes and drops is retired, whether or not an older state has a delta on it.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Delta_MadeAndDroppedByOneBatch_RetiresItsBase(bool hasOlder)
    {
        using var store = Checkpointed();
        if (hasOlder)
            Put(store, step: 50);
        Assert.Equal(hasOlder, store.BeginCheckpoint());
        store.Batch(batch =>
        {
            for (var key = 0; key < Keys; key += 60)
                batch.Put(TreeId.Kv, KeyOf(key), new byte[100]);
            batch.DeleteRange(TreeId.Kv, KeyOf(500), KeyOf(3_000));
        });
        store.Publish();
        store.EndCheckpoint();
        store.CheckEverywhere();
    }

    /// <summary>A cursor of a root that was made between the freeze and the swap stands in the base of a delta, whose page must not be used again.</summary>
    [Fact]
    public void Cursor_InABaseThatIsReplacedAndFreed_ReadsOn()
    {
        using var store = Checkpointed();
        Put(store, step: 50);
        Assert.True(store.BeginCheckpoint());
        Put(store, step: 100);
        using (var snapshot = store.Store.Roots.OpenSnapshot())
        using (var cursor = snapshot.Cursor(TreeId.Kv))
        {
            var expected = store.Published[TreeId.Kv];
            Assert.True(cursor.MoveNext());
            store.WriteCheckpoint();
            store.FinishCheckpoint();
            for (var round = 0; round < 6; round++)
            {
                Put(store, step: 1);
                store.Checkpoint();
            }
            foreach (var (key, value) in expected)
            {
                Assert.Equal(key, cursor.Key.ToArray());
                Assert.Equal(value, cursor.Value.ToArray());
                cursor.MoveNext();
            }
        }
        store.CheckEverywhere();
    }

    /// <summary>The keys of the base have its prefix before them, also after a key of the delta that does not begin with that.</summary>
    [Fact]
    public void Cursor_AtKeysWithAndWithoutThePrefixOfTheBase_HasThemWhole()
    {
        using var store = new ModelStore(_options);
        store.Batch(batch =>
        {
            for (byte number = 0; number < 100; number++)
                batch.Put(TreeId.Kv, [.. Enumerable.Repeat((byte)'k', 20), number], new byte[100]);
        });
        store.Publish();
        store.Checkpoint();
        store.Batch(batch => batch.Put(TreeId.Kv, "kkkkkz"u8.ToArray(), [1]));
        store.Publish();
        var whole = store.Store.Space.ResolveBase((byte*)Assert.Single(DeltasOf(store)));
        Assert.True(Page.PrefixLength(whole) > "kkkkk".Length);
        using (var snapshot = store.Store.Roots.OpenSnapshot())
        using (var cursor = snapshot.Cursor(TreeId.Kv))
        {
            foreach (var (key, value) in store.Published[TreeId.Kv].Reverse())
            {
                Assert.True(cursor.MovePrevious());
                Assert.Equal(key, cursor.Key.ToArray());
                Assert.Equal(value, cursor.Value.ToArray());
            }
            Assert.False(cursor.MovePrevious());
        }
        store.CheckEverywhere();
    }

    /// <summary>What a cursor needs to merge a delta with its base is pooled.</summary>
    [Fact]
    public void Cursors_OverDeltas_AllocateWhatThoseOverWholeLeavesDo()
    {
        using var store = Checkpointed();
        Open(store);
        var ofLeaves = Allocations.Of(() => Open(store));
        Put(store, step: 50);
        Open(store);
        Assert.InRange(Allocations.Of(() => Open(store)), 0, ofLeaves + (2 * Allocations.Context));

        static void Open(ModelStore store)
        {
            for (var turn = 0; turn < 1_000; turn++)
            {
                using var snapshot = store.Store.Roots.OpenSnapshot();
                using var cursor = snapshot.Cursor(TreeId.Kv);
                Assert.True(cursor.MoveNext());
                Assert.True(cursor.Key.Length > 0);
            }
        }
    }

    /// <summary>Dropped while a checkpoint folds an older delta of it, or folds nothing of it, or is given up: each base is retired once.</summary>
    [Theory]
    [InlineData(true, false)]
    [InlineData(true, true)]
    [InlineData(false, false)]
    [InlineData(false, true)]
    public void Bases_DroppedWhileACheckpointRuns_AreRetiredOnce(bool isFolded, bool isAbandoned)
    {
        using var store = Checkpointed();
        if (isFolded)
            Put(store, step: 50);
        else
            store.Batch(batch => batch.Put(TreeId.Expiry, [1], [1]));
        store.Publish();
        Assert.True(store.BeginCheckpoint());
        Put(store, step: 60);
        // All leaves between these are dropped, some of them by a batch that is published only at the end.
        store.Batch(batch => batch.DeleteRange(TreeId.Kv, KeyOf(500), KeyOf(1_500)));
        store.Publish();
        store.Batch(batch => batch.DeleteRange(TreeId.Kv, KeyOf(2_500), KeyOf(3_000)));
        if (isAbandoned)
        {
            store.Disk.Refuse = static (operation, path) => operation == "Write" ? new StorageIoException("write", path, "no space", isDiskFull: true) : null;
            Assert.Throws<StorageIoException>(store.WriteCheckpoint);
            store.Disk.Refuse = null;
            store.AbandonCheckpoint();
        }
        else
        {
            store.WriteCheckpoint();
            store.FinishCheckpoint();
        }
        store.Store.Verify();
        store.Publish();
        store.Store.Verify();
        store.CheckEverywhere();
    }

    /// <summary>What the delta says is read without the base. Everything else finds the damage, also the checkpoint, for which it is no failed write.</summary>
    [Fact]
    public void Base_ThatTheDiskCannotRead_IsDamage()
    {
        using var store = Checkpointed();
        Put(store, step: 50);
        foreach (var delta in DeltasOf(store))
        {
            var number = DeltaPage.Base((byte*)delta).Reference.Number;
            store.Store.Space.Forget(number);
            store.Disk.MakeUnreadable(ModelStore.Path, number * Page.Bytes, Page.Bytes);
        }
        using (var snapshot = store.Store.Roots.OpenSnapshot())
        {
            Assert.True(snapshot.TryGet(TreeId.Kv, KeyOf(50), out var value));
            Assert.Equal(store.Published[TreeId.Kv][KeyOf(50)], value.ToArray());
            Assert.Equal((ulong)Keys, snapshot.CountRange(TreeId.Kv, default, default));
            Assert.Throws<CorruptStoreException>(() => snapshot.TryGet(TreeId.Kv, KeyOf(51), out _));
            using var cursor = snapshot.Cursor(TreeId.Kv);
            Assert.Throws<CorruptStoreException>(() => cursor.MoveNext());
        }
        Assert.True(store.BeginCheckpoint());
        Assert.Throws<CorruptStoreException>(store.WriteCheckpoint);
    }

    /// <summary>A range is counted and dropped by what the deltas know.</summary>
    [Fact]
    public void DeleteRange_OfDeltas_ReadsNoBase()
    {
        using var store = Checkpointed();
        Put(store, step: 50);
        foreach (var delta in DeltasOf(store))
        {
            // Not those at the edges of the range.
            if (KeyIn((byte*)delta) is > 400 and < Keys - 400)
                store.Store.Space.Forget(DeltaPage.Base((byte*)delta).Reference.Number);
        }
        var reads = PageSpace.ReadsOfThread;
        store.Batch(batch => batch.DeleteRange(TreeId.Kv, KeyOf(200), KeyOf(Keys - 200)));
        Assert.Equal(reads, PageSpace.ReadsOfThread);
        store.Publish();
        store.CheckEverywhere();
    }

    /// <summary>
    /// Each checkpoint writes all leaves. Where it takes both meta pages, the pages of the one before it are free for the next, and a pin keeps them still.
    /// </summary>
    [Fact]
    public void Checkpoints_OfAllLeaves_HaveTwoStatesInTheFile()
    {
        using var store = Checkpointed(_options with { OlderBytesMax = 0 });
        for (var round = 0; round < 6; round++)
        {
            Put(store, step: 50);
            store.Checkpoint();
            Assert.Equal(store.Store.Covered, store.Store.CoveredByOlderMeta);
            // The map in the file calls pages pending that are free.
            store.Reopen();
            store.CheckPublished();
            store.Store.Verify();
        }
        Assert.InRange(store.Store.Free.FilePages, 0, 2 * store.Store.Free.UsedPages * 11 / 10);
        Put(store, step: 50);
        using (store.Store.Pin())
        {
            store.Checkpoint();
            Put(store, step: 60);
            store.Checkpoint();
            Assert.True(store.Store.PinnedBytes > 0);
        }
        store.CheckEverywhere();
    }

    /// <summary>
    /// While the end of a checkpoint frees the pages of the one before it, in steps, pins are of the new one. One that was of the other would find its pages
    /// used again, and tell of damage that is none.
    /// </summary>
    [Fact]
    public void Pin_OpenedWhileTheOlderCheckpointIsRetired_StaysAsItIs()
    {
        var isDone = false;
        for (var steps = 1; !isDone; steps++)
        {
            using var store = Checkpointed(_options with { OlderBytesMax = 0, StepPages = 16 });
            Put(store, step: 50);
            Assert.True(store.BeginCheckpoint());
            store.WriteCheckpoint();
            for (var step = 0; step < steps && !isDone; step++)
                isDone = store.FinishStep();
            using var pin = store.Store.Pin();
            var before = ChecksumsOf(pin);
            if (!isDone)
                store.FinishCheckpoint(givesBack: false);
            for (var round = 0; round < 3; round++)
            {
                Put(store, step: 40 + round);
                store.Checkpoint();
            }
            Assert.True(before.SequenceEqual(ChecksumsOf(pin)), $"A checkpoint that was pinned after {steps} steps of the end of the next has changed.");
            Assert.True(!isDone || steps > 2, $"The end of the checkpoint took {steps} steps.");
        }
    }

    /// <summary>It holds all leaves at once when a checkpoint that writes them ends, which is no reason to end it.</summary>
    [Fact]
    public void Reader_OfTheStateThatACheckpointOfAllLeavesHasLeft_IsNotAskedToEnd()
    {
        using var store = Checkpointed(_options with { OlderBytesMax = 0, PinnedBytesMax = 64 << 10 });
        Put(store, step: 50);
        using (var snapshot = store.Store.Roots.OpenSnapshot())
        {
            Put(store, step: 40);
            store.Checkpoint();
            Put(store, step: 60);
            Assert.True(store.Store.PinnedBytes > 256 << 10, $"The reader holds only {store.Store.PinnedBytes} bytes.");
            Assert.False(snapshot.IsTooOld);
        }
        store.CheckEverywhere();
    }

    /// <summary>The system is asked early for each base, once. What the checkpoint remembers of the deltas counts as memory until it ends.</summary>
    [Fact]
    public void Checkpoint_OfDeltas_AsksForTheirBases()
    {
        using var store = Checkpointed();
        Put(store, step: 50);
        var bases = DeltasOf(store).ConvertAll(static delta => DeltaPage.Base((byte*)delta).Reference.Number);
        var asked = new List<long>();
        store.Disk.BeginsRead = (offset, _) =>
        {
            asked.Add(offset / Page.Bytes);
            return true;
        };
        Assert.True(store.BeginCheckpoint());
        store.WriteCheckpoint();
        Assert.Equal(bases.Order(), asked.Order());
        Assert.Equal(bases.Count * 3 * sizeof(long), store.Store.CheckpointListBytes);
        store.FinishCheckpoint();
        Assert.Equal(0, store.Store.CheckpointListBytes);
    }

    /// <summary>Deltas count as pages where space in the file is concerned, until a checkpoint has folded them.</summary>
    [Fact]
    public void ChangedFileBytes_OfDeltas_AreThoseOfPages()
    {
        using var store = Checkpointed(_options with { StepPages = 16 });
        ReleaseAll(store);
        Assert.Equal(store.Store.ChangedBytes, store.Store.ChangedFileBytes);
        Put(store, step: 50);
        var deltas = DeltasOf(store).Count;
        Assert.InRange(store.Store.ChangedFileBytes, deltas * Page.Bytes, (deltas + 4) * Page.Bytes);
        store.Checkpoint();
        // Their memory is returned in steps, so most are still there.
        Assert.True(store.Store.PlacedBytes > 0);
        Assert.InRange(store.Store.ChangedFileBytes, 0, 8 * Page.Bytes);
        ReleaseAll(store);
        Assert.Equal(store.Store.ChangedBytes, store.Store.ChangedFileBytes);
    }

    /// <summary>
    /// What only a reader still has comes into no checkpoint. A full disk would otherwise stay full for as long as the reader is open, because nothing that is
    /// deleted makes these bytes fewer.
    /// </summary>
    [Fact]
    public void ChangedFileBytes_OfDeltasThatOnlyAReaderHas_AreNone()
    {
        using var store = Checkpointed(_options);
        Put(store, step: 50);
        var snapshot = store.Store.Roots.OpenSnapshot();
        store.Checkpoint();
        ReleaseAll(store);
        Assert.InRange(store.Store.HeldScratchBytes, 1, long.MaxValue);
        Assert.Equal((0, 0), (store.Store.ChangedBytes, store.Store.ChangedFileBytes));
        snapshot.Dispose();
        ReleaseAll(store);
        Assert.Equal((0, 0, 0), (store.Store.HeldScratchBytes, store.Store.ChangedBytes, store.Store.ChangedFileBytes));
    }

    [Fact]
    public void FoldedDeltas_AreFoundByTheirBases() => Seeds.Run(3, random =>
    {
        using var pool = new ScratchPool(0);
        var pages = new List<nint>();
        var folded = new CheckpointDeltas(pages);
        long[] numbers = [.. Enumerable.Range(0, 1_000).Select(_ => (long)random.Next(2, 2_000)).Append(FreeMap.FilePagesMax - 1).Distinct()];
        foreach (var number in numbers)
        {
            // Others are between them.
            pages.Add(0);
            var delta = pool.RentBlock(256);
            DeltaPage.StoreBase(delta, new PageLink(PageRef.ToFile(number), uint.MaxValue));
            folded.AddNext(delta);
            pages.Add((nint)delta);
        }
        folded.Sort();
        for (var number = 0L; number < 2_010; number++)
        {
            Assert.Equal(numbers.Contains(number), folded.TryFind(number, out var delta));
            if (delta != null)
                Assert.Equal(number, DeltaPage.Base(delta).Reference.Number);
        }
        Assert.True(folded.TryFind(FreeMap.FilePagesMax - 1, out _));
        var bases = folded.Bases();
        Assert.Equal(numbers.Order(), bases.SelectMany(static run => Enumerable.Range(0, (int)run.Count).Select(page => run.First + page)));
        Assert.True(bases.Count < numbers.Length, "No neighbours are one run.");
    });

    /// <summary>A delta is folded by changing a copy of its base, so what is the same stays where it is.</summary>
    [Fact]
    public void Fold_OfValuesOfTheSameLength_LeavesCellsInTheirPlaces()
    {
        using var store = Checkpointed();
        Put(store, step: 50);
        var page = stackalloc byte[Page.Bytes];
        foreach (var delta in DeltasOf(store))
        {
            var whole = store.Store.Space.ResolveBase((byte*)delta);
            DeltaPage.Fold(page, (byte*)delta, whole);
            var slots = new Span<ushort>(Page.Slots(whole), Page.Count(whole));
            Assert.True(slots.SequenceEqual(new Span<ushort>(Page.Slots(page), Page.Count(page))));
        }
    }

    /// <summary>The leaves are full, so a copy of the base has no room for the new values beside the old ones, and deleted keys make no room in it.</summary>
    [Fact]
    public void Fold_OfValuesOfOtherLengths_HasRoom()
    {
        using var store = Checkpointed();
        for (var round = 0; round < 3; round++)
        {
            store.Batch(batch =>
            {
                for (var key = round; key < Keys; key += 20)
                {
                    batch.Delete(TreeId.Kv, KeyOf(key));
                    batch.Put(TreeId.Kv, KeyOf(key + 1), new byte[101]);
                }
            });
            store.Publish();
            Assert.NotEmpty(DeltasOf(store));
            store.CheckPublished();
        }
        store.Checkpoint();
        store.CheckPublished();
        store.CheckEverywhere();
    }

    [Fact]
    public void Blocks_RentedAndReturned_DoNotOverlap() => Seeds.Run(3, random =>
    {
        using var pool = new ScratchPool(0);
        var rented = new List<(nint Block, int Bytes, byte Mark)>();
        var bytes = 0L;
        for (var step = 0; step < 4_000; step++)
        {
            if (rented.Count > 0 && random.Next(step < 2_000 ? 3 : 2) == 0)
            {
                var at = random.Next(rented.Count);
                var (block, size, mark) = rented[at];
                var content = new Span<byte>((byte*)block + Page.HeaderBytes, size - Page.HeaderBytes);
                Assert.False(content.ContainsAnyExcept(mark), "A block was written through another one.");
                pool.Return((byte*)block);
                bytes -= size;
                rented.RemoveAt(at);
            }
            else
            {
                var size = ScratchPool.BlockBytesFor(random.Next(ScratchPool.BlockBytesMax) + 1);
                var block = pool.RentBlock(size);
                var mark = (byte)random.Next(256);
                new Span<byte>(block, size).Fill(mark);
                // The pool knows a block's size by its header.
                new Span<byte>(block, Page.HeaderBytes).Clear();
                Page.Type(block) = PageType.Delta;
                *(block + 36) = (byte)(size / 128);
                rented.Add(((nint)block, size, mark));
                bytes += size;
            }
            Assert.Equal(bytes, pool.Bytes);
            // Pages that have blocks serve nothing else.
            var pages = rented.Select(static one => one.Block & ~(nint)(Page.Bytes - 1)).Distinct().Count();
            Assert.Equal(((long)pages * Page.Bytes) - bytes, pool.HoleBytes);
        }
    });

    private static ModelStore Checkpointed(PageStoreOptions? options = null)
    {
        var store = new ModelStore(options ?? _options);
        var random = new Random(1);
        store.Batch(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, KeyOf(key), ValueOf(random));
        });
        store.Publish();
        store.Checkpoint();
        return store;
    }

    private static void Put(ModelStore store, int step)
    {
        var random = new Random(step);
        store.Batch(batch =>
        {
            for (var key = 0; key < Keys; key += step)
                batch.Put(TreeId.Kv, KeyOf(key), ValueOf(random));
        });
        store.Publish();
    }

    private static List<uint> ChecksumsOf(CheckpointPin pin)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        var checksums = new List<uint>();
        foreach (var run in pin.Runs)
        {
            for (var page = run.First; page < run.First + run.Count; page++)
            {
                pin.ReadPages(page, buffer.Span);
                checksums.Add(Crc32C.Of(buffer.Span));
            }
        }
        return checksums;
    }

    private static byte[] KeyOf(int number) => [(byte)'k', (byte)(number >> 24), (byte)(number >> 16), (byte)(number >> 8), (byte)number];

    private static byte[] ValueOf(Random random)
    {
        var value = new byte[100];
        random.NextBytes(value);
        return value;
    }

    private static int KeyIn(byte* delta)
    {
        Span<byte> key = stackalloc byte[Page.KeyBytesMax];
        TreePage.CopyKey(delta, 0, key);
        return (key[3] << 8) | key[4];
    }

    private static void ReleaseAll(ModelStore store)
    {
        while (store.Store.ReleaseSome())
        {
        }
    }

    private static List<nint> DeltasOf(ModelStore store)
    {
        var deltas = new List<nint>();
        Add(store.Store.Roots.Published.Trees[(int)TreeId.Kv].Link.Reference);
        return deltas;

        void Add(PageRef reference)
        {
            if (reference.IsDelta)
            {
                deltas.Add((nint)reference.Memory);
            }
            else if (reference.IsScratch && Page.Type(reference.Memory) == PageType.Branch)
            {
                for (var child = 0; child < Page.Count(reference.Memory); child++)
                    Add(TreePage.Child(reference.Memory, child)->Reference);
            }
        }
    }
}
