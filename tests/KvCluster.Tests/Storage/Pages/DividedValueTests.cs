using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// Where values of all sizes are. Values of 2,100 bytes had a page of 8 KiB each, those of 9,000 two, so the file took up to four times their bytes.
/// </summary>
public sealed unsafe class DividedValueTests
{
    private const int Keys = 600;

    [Theory]
    [InlineData(16, 8_127, 0)]
    [InlineData(16, 8_128, 0)]
    [InlineData(16, 8_129, 1)]
    [InlineData(16, 9_000, 872)]
    [InlineData(16, 12_131, 4_003)]
    [InlineData(16, 12_132, 0)]
    [InlineData(1_016, 11_131, 3_003)]
    [InlineData(1_016, 11_132, 0)]
    [InlineData(16, 66_000, 528)]
    [InlineData(16, 74_000, 0)]
    public void Beginning_OfAValue_IsWhatDoesNotFillAPage_IfTwoEntriesStillFitIntoALeaf(int keyBytes, int valueBytes, int expected)
    {
        Assert.Equal(expected, OverflowRun.BeginningFor(keyBytes, valueBytes));
        var recorded = OverflowRun.Recorded(valueBytes, expected);
        Assert.Equal(((uint)valueBytes, expected), (OverflowRun.LengthOf(recorded), OverflowRun.BeginningOf(recorded)));
        Assert.InRange(TreePage.LeafEntryBytes(keyBytes, expected, overflow: true), 1, Page.BodyBytes / 2);
    }

    /// <summary>Loaded in order. Leaves are cut nowhere yet, so of 2,100 bytes three are in each.</summary>
    [Theory]
    [InlineData(1_100, 1.15)]
    [InlineData(2_100, 1.4)]
    [InlineData(4_000, 1.1)]
    [InlineData(9_000, 1.1)]
    [InlineData(10_000, 1.1)]
    [InlineData(17_000, 1.1)]
    [InlineData(40_000, 1.1)]
    public void File_OfValuesOfOneSize_TakesLittleMoreThanTheirBytes(int valueBytes, double partMost)
    {
        using var store = new DataFile();
        Fill(store.Pages, valueBytes, mark: 1);
        store.Pages.CheckpointAll();
        var part = store.Pages.Free.UsedPages * (double)Page.Bytes / ((long)Keys * valueBytes);
        Assert.True(part <= partMost, $"Values of {valueBytes} bytes take {part:0.00} times their bytes.");
        store.Pages.Verify();
        AssertHas(store.Pages, valueBytes, mark: 1);
        store.Reopen();
        AssertHas(store.Pages, valueBytes, mark: 1);
    }

    /// <summary>Overwritten by values of other sizes, so that beginnings come, change and go, in leaves that are whole and in deltas.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(ScratchPool.BlockBytesMax)]
    public void Values_OverwrittenByOthersOfAnySize_AreTheLastOnes(int deltaBytesMax) => Seeds.Run(4, random =>
    {
        using var store = new ModelStore(new PageStoreOptions { MapBytes = 1L << 30, DeltaBytesMax = deltaBytesMax });
        for (var round = 0; round < 8; round++)
        {
            store.Batch(batch =>
            {
                for (var put = 0; put < 60; put++)
                {
                    var value = new byte[random.Next(4) switch { 0 => random.Next(4_100), 1 => random.Next(3_900, 8_200), _ => 8_000 + random.Next(9_000) }];
                    random.NextBytes(value);
                    batch.Put(TreeId.Kv, ByteKeys.Of(random.Next(120)), value);
                }
                for (var delete = 0; delete < 6; delete++)
                    batch.Delete(TreeId.Kv, ByteKeys.Of(random.Next(120)));
            });
            store.Publish();
            store.OpenReader();
            store.Checkpoint();
            store.Store.Verify();
            for (var reader = store.Readers - 1; reader >= 0; reader--)
                store.CloseReader(reader);
        }
    });

    /// <summary>Programs of format levels below 4 open the file until a store that divides values has written a checkpoint.</summary>
    [Fact]
    public void Store_ThatDividesNoValues_WritesAFileOfTheVersionBefore_AndKeepsALaterOne()
    {
        using var disk = new SimulatedDisk();
        var before = new PageStoreOptions { MapBytes = 1 << 28, DividesValues = false };
        using (var store = PageStore.Create(disk, "data", before, new byte[16]))
        {
            Fill(store, valueBytes: 9_000, mark: 1);
            store.CheckpointAll();
            Assert.Equal(MetaPage.FormatVersionMin, store.Meta.Newest.Version);
            Assert.True(store.Free.UsedPages >= 2 * Keys, "A value of 9,000 bytes does not have two pages.");
        }
        using (var store = PageStore.Open(disk, "data", before with { DividesValues = true }))
        {
            AssertHas(store, valueBytes: 9_000, mark: 1);
            Fill(store, valueBytes: 9_000, mark: 2);
            store.CheckpointAll();
            Assert.Equal(MetaPage.FormatVersionOfDividedValues, store.Meta.Newest.Version);
        }
        using (var store = PageStore.Open(disk, "data", before))
        {
            AssertHas(store, valueBytes: 9_000, mark: 2);
            store.Apply(static batch => batch.Put(TreeId.Kv, ByteKeys.Of(Keys), "last"u8));
            store.CheckpointAll();
            Assert.Equal(MetaPage.FormatVersionOfDividedValues, store.Meta.Newest.Version);
            store.Verify();
        }
    }

    /// <summary>The etag and the life of a key are at the beginning of its value: a change of the key, or a scan of keys, does not read the run.</summary>
    [Fact]
    public void Beginning_OfADividedValue_IsReadWithoutItsRun()
    {
        using var disk = new SimulatedDisk();
        var options = new PageStoreOptions { MapBytes = 1 << 28 };
        var value = Value(key: 7, valueBytes: 9_000, mark: 3);
        using (var made = PageStore.Create(disk, "data", options, new byte[16]))
        {
            made.Apply(batch => batch.Put(TreeId.Kv, ByteKeys.Of(7), value));
            made.CheckpointAll();
        }
        Assert.Equal(1, MakeRunsUnreadable(disk));
        using var store = PageStore.Open(disk, "data", options);
        var batch = store.Begin();
        Assert.True(batch.TryGetBeginning(TreeId.Kv, ByteKeys.Of(7), KvValue.HeaderBytesMax, out var beginning));
        Assert.True(beginning.Length >= KvValue.HeaderBytesMax && value.AsSpan().StartsWith(beginning), "The beginning is another one.");
        Assert.Throws<CorruptStoreException>(() => batch.TryGet(TreeId.Kv, ByteKeys.Of(7), out _));
        store.Roots.Abort(batch);
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        Assert.True(cursor.MoveNext());
        Assert.True(value.AsSpan().StartsWith(cursor.Beginning(KvValue.HeaderBytesMax)), "The beginning in a scan is another one.");
        Assert.Throws<CorruptStoreException>(() => cursor.Value.Length);
    }

    /// <summary>Many keys may expire at once, or end with their session. Each read its value, and a divided one is copied for that.</summary>
    [Fact]
    public void Life_OfAKeyWithADividedValue_IsReadWithoutItsRun()
    {
        using var disk = new SimulatedDisk();
        var options = new PageStoreOptions { MapBytes = 1 << 28 };
        const ulong expiry = 1_000;
        var opened = new Etag(1, 7);
        using (var made = PageStore.Create(disk, "data", options, new byte[16]))
        {
            made.Apply(batch =>
            {
                KeyLives.Put(batch, ByteKeys.Of(1), Value(key: 1, valueBytes: 9_000, mark: 1), new Etag(1, 8), new KeyLife(expiry, opened));
                KeyLives.Put(batch, ByteKeys.Of(2), Value(key: 2, valueBytes: 9_000, mark: 1), new Etag(1, 9), new KeyLife(0, opened));
            });
            made.CheckpointAll();
        }
        Assert.Equal(2, MakeRunsUnreadable(disk));
        using var store = PageStore.Open(disk, "data", options);
        var batch = store.Begin();
        Assert.Equal(2, OwnedKeys.AppendDeletes(batch, opened, new ByteBuffer(capacity: 1_000)));
        Assert.True(KeyLives.Expire(batch, ByteKeys.Of(1), expiry, new Etag(1, 8)));
        Assert.True(KeyLives.Delete(batch, ByteKeys.Of(2)));
        Assert.Equal(0UL, batch.KeysOf(TreeId.Kv) + batch.KeysOf(TreeId.Expiry) + batch.KeysOf(TreeId.Owned));
        store.Roots.Abort(batch);
    }

    /// <summary>A copy of each divided value was made, and pages that were not in memory were read, for nothing but a length.</summary>
    [Fact]
    public void Request_IsCheckedByTheLengthsOfValues_WithoutTheirRuns()
    {
        const int values = 3;
        using var disk = new SimulatedDisk();
        var options = new PageStoreOptions { MapBytes = 1 << 28 };
        using (var made = PageStore.Create(disk, "data", options, new byte[16]))
        {
            made.Apply(batch =>
            {
                for (var key = 1; key <= values; key++)
                    batch.Put(TreeId.Kv, ByteKeys.Of(key), Value(key, valueBytes: 9_000, mark: 1));
            });
            made.CheckpointAll();
        }
        Assert.Equal(values, MakeRunsUnreadable(disk));
        using var store = PageStore.Open(disk, "data", options);
        var batch = store.Begin();
        var request = WriteRequest.Rent();
        request.Put(ByteKeys.Of(9), [1]);
        request.Touch(ByteKeys.Of(1), 1_000);
        request.Get(ByteKeys.Of(2));
        request.Scan([], [], 10, keysOnly: false);
        // A value of the read, and three of the scan.
        Assert.Equal(WriteOutcome.ResultsTooLarge, new RequestCheck(batch, request.List(isFailure: false), (values + 1) * 9_000).Run());
        Assert.Equal(WriteOutcome.Applied, new RequestCheck(batch, request.List(isFailure: false), (values + 2) * 9_000).Run());
        request.Return();
        store.Roots.Abort(batch);
    }

    /// <summary>One copy of the value was made to see whether its key exists, and another one to change its life.</summary>
    [Fact]
    public void Touch_OfADividedValue_CopiesItOnce()
    {
        const int touches = 200;
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        store.Apply(static batch => KeyLives.Put(batch, ByteKeys.Of(1), Value(key: 1, valueBytes: 9_000, mark: 1), new Etag(1, 7), default));
        var request = WriteRequest.Rent();
        for (var touch = 0; touch < touches; touch++)
            request.Touch(ByteKeys.Of(1), 1_000);
        var batch = store.Begin();
        var payload = new ByteBuffer(capacity: 100_000);
        var allocated = Allocations.Of(() => Execute(batch, request, payload));
        Assert.InRange(allocated, touches * 9_000, touches * 9_000 * 3 / 2);
        request.Return();
        store.Roots.Abort(batch);
    }

    private static void Execute(WriteBatch batch, WriteRequest request, ByteBuffer payload)
    {
        var (next, count) = (new Etag(1, 8), 0);
        var execution = new RequestExecution(batch, payload, results: null, 0, new Etag(1, 8), shardTime: 0, ref next, ref count);
        Assert.True(execution.Run(request.List(isFailure: false), default));
    }

    /// <summary>A cell whose length was damaged, under a checksum that is right, would be read beyond the page, or its run with a list of gigabytes.</summary>
    [Fact]
    public void Problem_LengthThatNoValueInARunHas_IsReported()
    {
        var page = stackalloc byte[Page.Bytes];
        Page.Format(page, PageType.Leaf, []);
        TreePage.InsertOverflow(page, 0, [1], OverflowRun.Recorded(8_200, 72), new PageLink(PageRef.ToFile(5), 0));
        Assert.Null(PageStructure.Problem(page));
        var recorded = (uint*)(Page.Cell(page, 0) + 4);
        *recorded = OverflowRun.Recorded(100, 1);
        Assert.Equal("entry 0 has a divided value of 100 bytes, which do not fill a page", PageStructure.Problem(page));
        *recorded = OverflowRun.Recorded(12_128, 4_000);
        Assert.Equal($"entry 0 at {Page.Slots(page)[0]} extends beyond the cells or is not aligned to 8 bytes", PageStructure.Problem(page));
        foreach (var length in (int[])[Page.ValueBytesMax + 1, (1 << 30) - 1])
        {
            *recorded = (uint)length;
            Assert.Equal($"entry 0 has a value of {length} bytes, which is too long", PageStructure.Problem(page));
            *recorded = OverflowRun.Recorded(length, 1);
            Assert.Equal($"entry 0 has a value of {length} bytes, which is too long", PageStructure.Problem(page));
        }
    }

    private static int MakeRunsUnreadable(SimulatedDisk disk)
    {
        var file = disk.ReadAll("data");
        var runs = Enumerable.Range(2, (file.Length / Page.Bytes) - 2).Where(page => file[(page * Page.Bytes) + 4] == (byte)PageType.Overflow).ToList();
        runs.ForEach(page => disk.MakeUnreadable("data", page * Page.Bytes, Page.Bytes));
        return runs.Count;
    }

    private static void Fill(PageStore store, int valueBytes, byte mark) => store.Apply(batch =>
    {
        for (var key = 0; key < Keys; key++)
            batch.Put(TreeId.Kv, ByteKeys.Of(key), Value(key, valueBytes, mark));
    });

    private static void AssertHas(PageStore store, int valueBytes, byte mark)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        for (var key = 0; key < Keys; key++)
        {
            Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(key), out var value), $"Key {key} is missing.");
            Assert.True(value.SequenceEqual(Value(key, valueBytes, mark)), $"Key {key} has another value.");
        }
        using var cursor = snapshot.Cursor(TreeId.Kv);
        for (var key = 0; key < Keys; key++)
        {
            Assert.True(cursor.MoveNext());
            Assert.True(cursor.Value.SequenceEqual(Value(key, valueBytes, mark)), $"A scan has another value of key {key}.");
        }
    }

    private static byte[] Value(int key, int valueBytes, byte mark)
    {
        var value = new byte[valueBytes];
        new Random((key * 251) + mark).NextBytes(value);
        return value;
    }
}
