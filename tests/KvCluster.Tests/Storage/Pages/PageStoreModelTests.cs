using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// Compares the page store with a sorted dictionary: random batches, publications, drops, checkpoints whose ends take many steps, long readers, reopening.
/// </summary>
public sealed class PageStoreModelTests
{
    /// <summary>Changed leaves are whole pages here.</summary>
    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void RandomOperations_MatchTheModel(string profile) =>
        Seeds.Run(3, random => RunSteps(
            KeyProfile.Of(profile),
            random, new PageStoreOptions { MapBytes = 1L << 30, StepPages = 1 << random.Next(12), DeltaBytesMax = 0 }, keysBefore: 0, changesMax: 120));

    /// <summary>
    /// Over trees with deltas of every size, some of which become whole leaves without need. Batches are small beside the tree, so that leaves change a little,
    /// again and again, also while checkpoints fold what they were.
    /// </summary>
    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfSmall), MemberType = typeof(KeyProfile))]
    public void RandomOperations_OverDeltas_MatchTheModel(string profile) =>
        Seeds.Run(3, random => RunSteps(KeyProfile.Of(profile), random, WithDeltas(random), keysBefore: 1_500, changesMax: 12));

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "3")]
    public void RandomOperations_OverDeltas_MatchTheModel_WithLargeEntries(string profile) => RandomOperations_OverDeltas_MatchTheModel(profile);

    /// <summary>
    /// Over deltas that have beginnings of values, whose runs are made, placed in the file, replaced and retired while checkpoints fold the deltas. In the
    /// profile with values of all sizes most leaves have few entries, and change too much to be deltas.
    /// </summary>
    [Fact]
    public void RandomOperations_OverDeltasOfDividedValues_MatchTheModel() =>
        Seeds.Run(3, random => RunSteps(KeyProfile.Divided, random, WithDeltas(random), keysBefore: 600, changesMax: 12));

    /// <summary>Over compressed values in leaves, deltas and runs, beside others. With each opening the store stops to compress, or begins again.</summary>
    [Fact]
    public void RandomOperations_OverCompressedValues_MatchTheModel() => Seeds.Run(
        4, random => RunSteps(
            KeyProfile.Compressible, random, WithDeltas(random) with { DeltaBytesMax = random.Next(3) * 2_048, CompressesValues = true }, keysBefore: 400,
            changesMax: 20));

    private static PageStoreOptions WithDeltas(Random random) => new()
    {
        MapBytes = 1L << 30,
        StepPages = 1 << random.Next(12),
        DeltaBytesMax = 256 << random.Next(5),
        OlderBytesMax = random.Next(2) * long.MaxValue,
        StaysWhole = () => random.Next(8) == 0,
    };

    private static void RunSteps(KeyProfile keys, Random random, PageStoreOptions options, int keysBefore, int changesMax)
    {
        using var store = new ModelStore(options) { SwitchesCompression = options.CompressesValues };
        if (keysBefore > 0)
        {
            store.Batch(batch => Fill(batch, keys, random, keysBefore));
            store.Publish();
            store.Checkpoint();
        }
        for (var step = 0; step < 250; step++)
            Step(store, keys, random, changesMax);
        store.Publish();
        store.EndCheckpoint();
        while (store.Readers > 0)
            store.CloseReader(0);
        store.CheckPublished();
        store.Store.Verify();
        store.Reopen();
        store.CheckPublished();
        store.Store.Verify();
    }

    [Theory]
    [MemberData(nameof(KeyProfile.NamesOfLarge), MemberType = typeof(KeyProfile))]
    [Trait("Turn", "6")]
    public void RandomOperations_MatchTheModel_WithLargeEntries(string profile) => RandomOperations_MatchTheModel(profile);

    /// <summary>
    /// A few keys with large values, which grow, shrink and go, and a checkpoint after every few batches: nearly every page of the file is freed, becomes a
    /// hole, is taken again, and is cut off with the end. Readers hold some of them.
    /// </summary>
    [Fact]
    public void HeavyReuse_WithHolesAndReaders_MatchesTheModel() => Seeds.Run(2, random =>
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, StepPages = 1 << random.Next(12) }) { HolePagesMin = 1 };
        var (written, holed, longest) = (0L, 0L, 0L);
        for (var round = 0; round < 120; round++)
        {
            var bytesMax = (round / 20 % 3) switch { 0 => 300_000, 1 => 9_000, _ => 60_000 };
            for (var batches = random.Next(1, 4); batches > 0; batches--)
            {
                store.Batch(batch => ChangeFew(batch, bytesMax, random));
                store.Publish();
            }
            if (random.Next(4) == 0 && store.Readers < 3)
                store.OpenReader();
            if (random.Next(3) == 0 && store.Readers > 0)
                store.CloseReader(random.Next(store.Readers));
            store.Checkpoint();
            written += store.Store.CheckpointCounts.Pages;
            longest = Math.Max(longest, store.Store.FileBytes);
            holed = Math.Max(holed, store.Store.FileBytes - store.Store.AllocatedBytes);
            if (random.Next(15) == 0)
                store.Reopen(random.Next(2) == 0 ? null : UnsyncedWrites.Kept);
            if (round % 5 == 0)
                store.CheckPublished();
        }
        store.CheckEverywhere();
        Assert.True(
            written * Page.Bytes > 4 * longest && holed > longest / 10,
            $"{written} pages were written into a file of at most {longest} bytes, of which at most {holed} were holes.");
    });

    [Fact]
    public void Deletes_OfEverything_LeaveEmptyTreesThatFillAgain() => Seeds.Run(3, random =>
    {
        using var store = new ModelStore();
        var keys = KeyProfile.All[random.Next(KeyProfile.All.Length)];
        for (var round = 0; round < 3; round++)
        {
            store.Batch(batch => Fill(batch, keys, random, 1500));
            store.Publish();
            store.Checkpoint();
            store.OpenReader();
            var left = store.Published[TreeId.Kv].Keys.ToArray();
            random.Shuffle(left);
            foreach (var part in left.Chunk(200))
            {
                store.Batch(batch => Array.ForEach(part, key => batch.Delete(TreeId.Kv, key)));
                store.Publish();
                store.Store.Verify();
            }
            store.CheckPublished();
            store.CloseReader(0);
            store.Checkpoint();
        }
        store.Reopen();
        store.CheckPublished();
        store.Store.Verify();
    });

    /// <summary>
    /// When the same keys are overwritten repeatedly, the file stops growing, because freed pages are reused. Long values may still need longer runs.
    /// </summary>
    [Fact]
    public void Overwriting_WithCheckpoints_ReusesPages()
    {
        using var store = new ModelStore();
        var random = new Random(7);
        var bytes = new List<long>();
        for (var round = 0; round < 20; round++)
        {
            store.Batch(batch =>
            {
                for (var key = 0; key < 3_000; key++)
                    batch.Put(TreeId.Kv, BitConverter.GetBytes(key), KeyProfile.All[key % 50 == 0 ? 4 : 0].Value(random));
            });
            store.Publish();
            store.Checkpoint();
            store.Store.Verify();
            bytes.Add(store.Store.FileBytes);
        }
        Assert.True(bytes[^1] <= bytes[9] * 1.1, $"The file grew from {bytes[9]} to {bytes[^1]} bytes in the last ten rounds.");
    }

    /// <summary>A reader that stays open over many checkpoints still reads its state. Its pages are reused after it closes.</summary>
    [Fact]
    public void LongReader_OverCheckpoints_ReadsItsState()
    {
        using var store = new ModelStore();
        var random = new Random(8);
        store.Batch(batch => Fill(batch, KeyProfile.All[2], random, 3_000));
        store.Publish();
        store.OpenReader();
        for (var round = 0; round < 8; round++)
        {
            store.Batch(batch => Fill(batch, KeyProfile.All[2], random, 1_000));
            store.Publish();
            store.Checkpoint();
            store.Store.Verify();
        }
        store.CloseReader(0);
        var before = store.Store.FileBytes;
        for (var round = 0; round < 4; round++)
        {
            store.Batch(batch => Fill(batch, KeyProfile.All[2], random, 500));
            store.Publish();
            store.Checkpoint();
        }
        store.Store.Verify();
        Assert.Equal(before, store.Store.FileBytes);
    }

    /// <summary>The pages of dropped states wait to be visited by a checkpoint's end, and the next batch reuses them.</summary>
    [Fact]
    public void DropUnpublished_BetweenStepsOfACheckpointsEnd_LosesNothing()
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, StepPages = 1 });
        Put(400, 100);
        store.Publish();
        store.BeginCheckpoint();
        Put(400, 99);
        store.Publish();
        Put(400, 98);
        store.WriteCheckpoint();
        Assert.False(store.FinishStep());
        store.DropUnpublished();
        Put(400, 97);
        store.FinishCheckpoint();
        store.CheckPublished();
        store.Publish();
        store.CheckPublished();
        store.Store.Verify();

        void Put(int keys, int valueBytes) => store.Batch(batch =>
        {
            for (var key = 0; key < keys; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[valueBytes]);
        });
    }

    /// <summary>
    /// Pages of earlier batches refer to memory that a checkpoint has placed in the file until its end visits them. A range is deleted without copying its
    /// pages, but what they refer to is retired as what is in the file.
    /// </summary>
    [Fact]
    public void DeleteRange_BetweenStepsOfACheckpointsEnd_RetiresThePlacesInTheFile()
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, StepPages = 1 });
        store.Batch(batch =>
        {
            for (var key = 0; key < 400; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[key % 2 == 0 ? 9_000 : 100]);
        });
        store.Publish();
        store.BeginCheckpoint();
        store.Batch(batch =>
        {
            for (var key = 1; key < 400; key += 2)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[99]);
        });
        store.Publish();
        store.WriteCheckpoint();
        Assert.False(store.FinishStep());
        store.Batch(batch => batch.DeleteRange(TreeId.Kv, BitConverter.GetBytes(3), []));
        store.Publish();
        store.FinishCheckpoint();
        store.CheckEverywhere();
    }

    [Fact]
    public void Batch_Aborted_ChangesNothing() => Seeds.Run(3, random =>
    {
        using var store = new ModelStore();
        store.Batch(batch => Fill(batch, KeyProfile.All[4], random, 200));
        store.Publish();
        var scratch = store.Store.ScratchBytes;
        for (var i = 0; i < 3; i++)
        {
            store.Batch(batch => Fill(batch, KeyProfile.All[4], random, 100), seal: false);
            store.CheckPublished();
            store.Store.Verify();
            Assert.Equal(scratch, store.Store.ScratchBytes);
        }
    });

    [Theory]
    [InlineData(0)]
    [InlineData(2049)]
    public void Put_KeyBeyondItsLimits_IsRefused(int keyBytes)
    {
        using var store = new ModelStore();
        store.Batch(batch => Assert.ThrowsAny<ArgumentException>(() => batch.Put(TreeId.Kv, new byte[keyBytes], [1, 2, 3])), seal: false);
    }

    [Theory]
    [InlineData(1, 0)]
    [InlineData(2048, 2048)]
    [InlineData(2048, 2049)]
    [InlineData(16, 4_026)]
    [InlineData(16, 4_027)]
    [InlineData(1, 12_146)]
    [InlineData(2048, 10_099)]
    [InlineData(7, 8 << 20)]
    public void Put_AtTheLimits_IsRead(int keyBytes, int valueBytes)
    {
        using var store = new ModelStore();
        var key = new byte[keyBytes];
        var value = new byte[valueBytes];
        new Random(keyBytes + valueBytes).NextBytes(value);
        store.Batch(batch => batch.Put(TreeId.Kv, key, value));
        store.Publish();
        store.CheckPublished();
        store.Checkpoint();
        store.CheckPublished();
        store.Reopen();
        store.CheckPublished();
        store.Store.Verify();
    }

    /// <summary>Several trees change in one batch. The checkpoint does not go beyond its bound, so it contains nothing that is not durable.</summary>
    [Fact]
    public void BeginCheckpoint_BelowTheNewestRoot_CoversNothingBeyondTheBound()
    {
        using var store = new ModelStore();
        var random = new Random(9);
        for (var i = 0; i < 4; i++)
        {
            store.Batch(batch => Fill(batch, KeyProfile.All[0], random, 50));
            store.Publish();
        }
        var bound = store.Published.Etag.Predecessor.Predecessor;
        var checkpoint = store.Store.BeginCheckpoint(etag => new CheckpointPosition(etag, new JournalPosition(1, 0), 0), bound);
        Assert.True(checkpoint is null || store.Store.Covered.Etag <= bound);
        if (checkpoint is not null)
        {
            checkpoint.Write();
            store.Store.FinishCheckpoint(checkpoint);
        }
        Assert.True(store.Store.Covered.Etag <= bound, $"The checkpoint covers {store.Store.Covered.Etag}, beyond {bound}.");
    }

    private static void Step(ModelStore store, KeyProfile keys, Random random, int changesMax)
    {
        switch (random.Next(100))
        {
            case < 45:
                store.Batch(batch => Change(batch, keys, random, random.Next(1, changesMax)));
                if (random.Next(3) > 0)
                    store.Publish(random.Next(1, 3));
                break;
            case < 50:
                store.Batch(batch => Change(batch, keys, random, 20), seal: false);
                break;
            case < 54:
                store.DropUnpublished();
                break;
            case < 60:
                store.Publish();
                break;
            case < 68 when store.Readers < 6:
                store.OpenReader();
                break;
            case < 76 when store.Readers > 0:
                store.CheckReader(random.Next(store.Readers), random);
                break;
            case < 80 when store.Readers > 0:
                store.CloseReader(random.Next(store.Readers));
                break;
            case < 94 when !store.IsCheckpointing:
                store.BeginCheckpoint();
                break;
            case < 88 when !store.IsCheckpointWritten && store.IsCheckpointing:
                store.WriteCheckpoint();
                break;
            case < 94 when store.IsCheckpointWritten:
                for (var steps = random.Next(1, 6); steps > 0 && store.IsCheckpointing; steps--)
                {
                    store.FinishStep();
                    store.CheckCounts(keys, random);
                }
                break;
            case 94:
                store.Reopen(random.Next(2) == 0 ? null : UnsyncedWrites.Dropped);
                store.CheckPublished();
                break;
            case 95 or 96:
                store.CheckCounts(keys, random);
                break;
            case > 96 when !store.IsCheckpointing:
                store.Store.Verify();
                break;
        }
    }

    private static void ChangeFew(ModelBatch batch, int bytesMax, Random random)
    {
        for (var changes = random.Next(1, 12); changes > 0; changes--)
        {
            byte[] key = [(byte)random.Next(24)];
            var value = new byte[random.Next(2) == 0 ? random.Next(bytesMax) : random.Next(200)];
            random.NextBytes(value);
            if (random.Next(3) == 0)
                batch.Delete(TreeId.Kv, key);
            else
                batch.Put(TreeId.Kv, key, value);
        }
    }

    private static void Fill(ModelBatch batch, KeyProfile keys, Random random, int count)
    {
        for (var i = 0; i < count; i++)
            batch.Put(TreeId.Kv, keys.Key(random), keys.Value(random));
    }

    private static void Change(ModelBatch batch, KeyProfile keys, Random random, int count)
    {
        var deletes = random.Next(4) == 0 ? 70 : 20;
        for (var i = 0; i < count; i++)
        {
            var tree = random.Next(8) == 0 ? ModelStore.Trees[random.Next(ModelStore.Trees.Length)] : TreeId.Kv;
            var key = batch[tree].Count > 0 && random.Next(3) == 0 ? batch[tree].Keys.ElementAt(random.Next(batch[tree].Count)) : keys.Key(random);
            var dice = random.Next(100);
            if (random.Next(6) == 0)
                batch.ChangeSomeSet(keys, random);
            else if (random.Next(50) == 0)
                batch.DeleteSomeRange(tree, keys, random);
            else if (random.Next(20) == 0)
                batch.CountSomeRange(tree, keys, random);
            else if (dice < deletes)
                batch.Delete(tree, key);
            else if (dice < deletes + 10)
                batch.Get(tree, key);
            else
                batch.Put(tree, key, keys.Value(random));
        }
    }
}
