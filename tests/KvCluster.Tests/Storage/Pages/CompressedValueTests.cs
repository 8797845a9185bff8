using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Values that a store compresses: read as they were put, wherever their bytes are, by stores that compress and by others.</summary>
public sealed unsafe class CompressedValueTests
{
    private const int Keys = 200;
    private const int HeaderBytes = 7;

    private static readonly PageStoreOptions _compressing = new() { MapBytes = 1 << 28, CompressesValues = true };
    private static readonly PageStoreOptions _plain = new() { MapBytes = 1 << 28, CompressesValues = false };

    /// <summary>In a leaf, divided between a leaf and a run, and in a run alone.</summary>
    [Theory]
    [InlineData(255, false)]
    [InlineData(256, true)]
    [InlineData(1_000, true)]
    [InlineData(4_100, true)]
    [InlineData(9_000, true)]
    [InlineData(18_000, true)]
    [InlineData(30_000, true)]
    [InlineData(40_000, true)]
    [InlineData(300_000, true)]
    [InlineData((8 << 20) - HeaderBytes, true)]
    public void Length_AndHeaderOfACompressedValue_AreThoseOfTheValue(int bodyBytes, bool isCompressed)
    {
        var value = Text(1, HeaderBytes + bodyBytes);
        using var disk = new SimulatedDisk();
        using (var store = PageStore.Create(disk, "data", _compressing, new byte[16]))
        {
            store.Apply(batch =>
            {
                Put(batch, 1, value);
                AssertHas(batch);
            });
            AssertReads(store);
            store.CheckpointAll();
            AssertReads(store);
        }
        using (var store = PageStore.Open(disk, "data", _plain))
        {
            AssertReads(store);
            store.Verify();
            if (isCompressed)
                Assert.True(store.Free.UsedPages <= 6 + (bodyBytes * 3L / 4 / Page.Bytes), $"{bodyBytes} bytes take {store.Free.UsedPages} pages.");
        }

        void AssertHas(WriteBatch batch)
        {
            Assert.True(batch.TryGet(TreeId.Kv, ByteKeys.Of(1), out var found) && found.SequenceEqual(value));
            Assert.True(batch.TryGetLength(TreeId.Kv, ByteKeys.Of(1), out var bytes));
            Assert.Equal(value.Length, bytes);
            Assert.True(batch.TryGetBeginning(TreeId.Kv, ByteKeys.Of(1), KvValue.HeaderBytesMax, out var beginning));
            Assert.True(beginning.Length >= HeaderBytes && value.AsSpan().StartsWith(beginning), "The beginning is another one.");
        }

        void AssertReads(PageStore store)
        {
            using var snapshot = store.Roots.OpenSnapshot();
            Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(1), out var found) && found.SequenceEqual(value));
            using var cursor = snapshot.Cursor(TreeId.Kv);
            Assert.True(cursor.MoveNext() && cursor.Value.SequenceEqual(value));
            Assert.Equal(value.Length, cursor.ValueLength);
            Assert.True(value.AsSpan().StartsWith(cursor.Beginning(KvValue.HeaderBytesMax)));
            Assert.Equal(isCompressed, CompressedIn(store) == 1);
        }
    }

    /// <summary>Random bytes are put as they are, and so is what saves less than a quarter.</summary>
    [Theory]
    [InlineData(0.2, false)]
    [InlineData(0.35, true)]
    public void Value_IsCompressed_IfThatSavesAQuarter(double repetitivePart, bool isCompressed)
    {
        foreach (var bytes in (int[])[1_000, 9_000, 400_000])
        {
            var value = new byte[bytes];
            new Random(bytes).NextBytes(value);
            // The same in each sample of a large one.
            for (var part = 0; part < bytes; part += 1_000)
                value.AsSpan(part, (int)(repetitivePart * 1_000)).Clear();
            using var disk = new SimulatedDisk();
            using var store = PageStore.Create(disk, "data", _compressing, new byte[16]);
            store.Apply(batch => Put(batch, 1, value));
            Assert.Equal(isCompressed ? 1 : 0, CompressedIn(store));
            using var snapshot = store.Roots.OpenSnapshot();
            Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(1), out var found) && found.SequenceEqual(value));
        }
    }

    /// <summary>Also by the way that records of many puts take into leaves.</summary>
    [Fact]
    public void Values_PutInOrder_AreCompressed()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", _compressing, new byte[16]);
        (byte[] Key, byte[] Value)[] entries = [.. Enumerable.Range(0, Keys).Select(key => (ByteKeys.Of(key), Text(key, 600)))];
        store.Apply(batch =>
        {
            var puts = new PutList(entries);
            batch.PutAll(TreeId.Kv, ref puts);
        });
        Assert.Equal(Keys, CompressedIn(store));
        store.CheckpointAll();
        store.Verify();
        using var snapshot = store.Roots.OpenSnapshot();
        foreach (var (key, value) in entries)
            Assert.True(snapshot.TryGet(TreeId.Kv, key, out var found) && found.SequenceEqual(value));
    }

    /// <summary>Only values of keys are: small sets are changed in place, and the other trees have small values.</summary>
    [Fact]
    public void Entries_OfOtherTrees_AreNotCompressed()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", _compressing, new byte[16]);
        var value = Text(1, 2_000);
        store.Apply(batch =>
        {
            batch.Put(TreeId.Sessions, ByteKeys.Of(1), value.AsSpan(0, 5), value.AsSpan(5));
            for (var member = 0; member < 20; member++)
                batch.SetAdd(ByteKeys.Of(1), Text(member, 60), new Etag(1, 1));
        });
        Assert.Equal(0, CompressedIn(store, TreeId.Sessions) + CompressedIn(store, TreeId.Sets));
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.True(snapshot.TryGet(TreeId.Sessions, ByteKeys.Of(1), out var found) && found.SequenceEqual(value));
    }

    /// <summary>A store that compresses no values writes what it wrote before there were any, and reads those that it did not write.</summary>
    [Fact]
    public void Store_ThatCompressesNoValues_WritesAFileOfTheVersionBefore_AndReadsALaterOne()
    {
        using var disk = new SimulatedDisk();
        using (var store = PageStore.Create(disk, "data", _plain, new byte[16]))
        {
            Fill(store, mark: 1);
            store.CheckpointAll();
            Assert.Equal((MetaPage.FormatVersionOfDividedValues, 0), (store.Meta.Newest.Version, CompressedIn(store)));
        }
        using (var store = PageStore.Open(disk, "data", _compressing))
        {
            AssertHas(store, mark: 1);
            Assert.Equal(MetaPage.FormatVersionOfDividedValues, store.Meta.Newest.Version);
            store.Apply(static batch => Put(batch, Keys, [1]));
            store.CheckpointAll();
            Assert.Equal((MetaPage.FormatVersion, 0), (store.Meta.Newest.Version, CompressedIn(store)));
            Fill(store, mark: 2);
            store.CheckpointAll();
            Assert.Equal((MetaPage.FormatVersion, Keys), (store.Meta.Newest.Version, CompressedIn(store)));
        }
        using (var store = PageStore.Open(disk, "data", _plain))
        {
            AssertHas(store, mark: 2);
            store.Apply(static batch => Put(batch, 0, Value(0, mark: 2)));
            store.CheckpointAll();
            Assert.Equal((MetaPage.FormatVersion, Keys - 1), (store.Meta.Newest.Version, CompressedIn(store)));
            AssertHas(store, mark: 2);
            store.Verify();
        }
        // Programs that divide no values know no compressed ones either.
        Assert.False((_compressing with { DividesValues = false }).CompressesValues);
    }

    /// <summary>Replicas are compared by their digests.</summary>
    [Fact]
    public void Digest_OfStoresThatCompressOrNot_IsTheSame()
    {
        using var disk = new SimulatedDisk();
        var digests = new List<string>();
        foreach (var (name, options) in (ReadOnlySpan<(string, PageStoreOptions)>)[("one", _compressing), ("other", _plain)])
        {
            using var store = PageStore.Create(disk, name, options, new byte[16]);
            Fill(store, mark: 1);
            store.Apply(static batch => Put(batch, Keys, Text(1, 60_000)));
            using var snapshot = store.Roots.OpenSnapshot();
            digests.Add(Convert.ToHexString(TreeDigest.Of(snapshot)));
        }
        Assert.Equal(digests[0], digests[1]);
    }

    /// <summary>One with as many bytes is overwritten in its place, in a leaf, in a delta and in a delta of the same batch.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(ScratchPool.BlockBytesMax)]
    public void Value_ThatTakesThePlaceOfOneWithAsManyBytes_IsRead(int deltaBytesMax)
    {
        var text = Text(1, 700);
        Assert.True(new ValueCompression().TryCompress(text.AsSpan(0, HeaderBytes), text.AsSpan(HeaderBytes), out var compressed));
        var noise = new byte[compressed.Length];
        new Random(1).NextBytes(noise);
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", _compressing with { DeltaBytesMax = deltaBytesMax }, new byte[16]);
        byte[][] rounds = [text, noise, text, text, noise, noise];
        store.Apply(static batch =>
        {
            for (var key = 0; key < Keys; key++)
                Put(batch, key, Value(key, mark: 1));
        });
        for (var round = 0; round + 1 < rounds.Length; round++)
        {
            for (var beforeCheckpoint = 0; beforeCheckpoint < 2; beforeCheckpoint++)
            {
                store.Apply(batch =>
                {
                    Put(batch, 100, rounds[round]);
                    Assert.True(batch.TryGet(TreeId.Kv, ByteKeys.Of(100), out var before) && before.SequenceEqual(rounds[round]));
                    Put(batch, 100, rounds[round + 1]);
                    Assert.True(batch.TryGet(TreeId.Kv, ByteKeys.Of(100), out var after) && after.SequenceEqual(rounds[round + 1]));
                });
                using var snapshot = store.Roots.OpenSnapshot();
                Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(100), out var found) && found.SequenceEqual(rounds[round + 1]), $"Round {round}");
            }
            store.CheckpointAll();
            store.Verify();
        }
    }

    /// <summary>Requests are refused by the lengths of the values that they read, the same on each replica.</summary>
    [Fact]
    public void Request_IsCheckedByTheLengthsOfValuesAsTheyWerePut()
    {
        const int values = 3;
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", _compressing, new byte[16]);
        store.Apply(static batch =>
        {
            for (var key = 1; key <= values; key++)
                Put(batch, key, Text(key, 9_000));
        });
        var batch = store.Begin();
        var request = WriteRequest.Rent();
        request.Put(ByteKeys.Of(9), [1]);
        request.Get(ByteKeys.Of(2));
        request.Scan([], [], 10, keysOnly: false);
        // A value of the read, and three of the scan.
        Assert.Equal(WriteOutcome.ResultsTooLarge, new RequestCheck(batch, request.List(isFailure: false), (values + 1) * 9_000).Run());
        Assert.Equal(WriteOutcome.Applied, new RequestCheck(batch, request.List(isFailure: false), (values + 2) * 9_000).Run());
        request.Return();
        store.Roots.Abort(batch);
    }

    /// <summary>The value is damaged, and no other. What can be told without it is told.</summary>
    [Theory]
    [InlineData(1_000)]
    [InlineData(30_000)]
    [InlineData(40_000)]
    public void Value_WhoseBytesGiveNone_IsDamage(int valueBytes)
    {
        using var disk = new SimulatedDisk();
        using (var made = PageStore.Create(disk, "data", _compressing, new byte[16]))
        {
            made.Apply(batch =>
            {
                Put(batch, 1, Text(1, valueBytes));
                Put(batch, 2, Text(2, 500));
            });
            made.CheckpointAll();
        }
        var file = disk.ReadAll("data");
        CompressedDamage.BreakBlock(file);
        disk.WriteAll("data", file);
        using var store = PageStore.Open(disk, "data", _plain);
        var damages = 0;
        store.Space.Damaged += _ => damages++;
        using var snapshot = store.Roots.OpenSnapshot();
        Assert.Contains(
            $"a value of {valueBytes} bytes whose compressed bytes do not give it",
            Assert.Throws<CorruptStoreException>(() => snapshot.TryGet(TreeId.Kv, ByteKeys.Of(1), out _)).Message, StringComparison.Ordinal);
        Assert.Equal(1, damages);
        Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(2), out var other) && other.SequenceEqual(Text(2, 500)));
        using var cursor = snapshot.Cursor(TreeId.Kv);
        Assert.True(cursor.MoveNext());
        Assert.Equal(valueBytes, cursor.ValueLength);
        Assert.True(Text(1, valueBytes).AsSpan().StartsWith(cursor.Beginning(HeaderBytes)));
        Assert.Throws<CorruptStoreException>(store.Verify);
    }

    /// <summary>A reader of a set keeps its place, and what is decompressed may be moved. No writer makes such an entry.</summary>
    [Fact]
    public void Set_ThatIsCompressed_IsDamage()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", _plain, new byte[16]);
        var page = stackalloc byte[Page.Bytes];
        Page.Format(page, PageType.Leaf, []);
        var text = Text(1, 700);
        Assert.True(new ValueCompression().TryCompress(text.AsSpan(0, HeaderBytes), text.AsSpan(HeaderBytes), out var compressed));
        compressed.CopyTo(TreePage.InsertInline(page, 0, [1], TreePage.CompressedInline(compressed.Length)));
        var cell = Page.Cell(page, 0);
        Assert.Contains(
            "a value of 700 bytes whose compressed bytes do not give it",
            Assert.Throws<CorruptStoreException>(() => new StoredSet(store.Space, cell)).Message, StringComparison.Ordinal);
    }

    /// <summary>A length that was damaged under a checksum that is right would have memory taken for a value of megabytes.</summary>
    [Fact]
    public void Problem_LengthThatCompressedBytesCannotGive_IsReported()
    {
        var page = stackalloc byte[Page.Bytes];
        Page.Format(page, PageType.Leaf, []);
        var text = Text(1, 700);
        Assert.True(new ValueCompression().TryCompress(text.AsSpan(0, HeaderBytes), text.AsSpan(HeaderBytes), out var compressed));
        compressed.CopyTo(TreePage.InsertInline(page, 0, [1], TreePage.CompressedInline(compressed.Length)));
        TreePage.InsertOverflow(page, 1, [2], OverflowRun.Recorded(8_200, 72, isCompressed: true), new PageLink(PageRef.ToFile(5), 0), 20_000);
        Assert.Null(PageStructure.Problem(page));
        int* inline = (int*)(Page.Cell(page, 0) + TreePage.LeafCellHeader), inRun = (int*)(Page.Cell(page, 1) + TreePage.OverflowCellHeader);
        var inCell = compressed.Length - sizeof(int);
        AssertProblem(inline, inCell, $"entry 0 has a compressed value of {inCell} bytes that takes {inCell}");
        AssertProblem(inline, (inCell * 255) + 1, $"entry 0 has a compressed value of {(inCell * 255) + 1} bytes, which {inCell} cannot give");
        AssertProblem(inline, -1, $"entry 0 has a compressed value of {uint.MaxValue} bytes, which is too long");
        AssertProblem(inRun, 8_200, "entry 1 has a compressed value of 8200 bytes that takes 8200");
        AssertProblem(inRun, (8_200 * 255) + 1, $"entry 1 has a compressed value of {(8_200 * 255) + 1} bytes, which 8200 cannot give");
        AssertProblem(inRun, Page.ValueBytesMax + 1, $"entry 1 has a compressed value of {Page.ValueBytesMax + 1} bytes, which is too long");
        *(ushort*)(Page.Cell(page, 0) + 2) = (ushort)TreePage.CompressedInline(4);
        Assert.Equal("entry 0 has a compressed value in 4 bytes", PageStructure.Problem(page));

        void AssertProblem(int* length, int wrong, string problem)
        {
            var before = *length;
            *length = wrong;
            Assert.Equal(problem, PageStructure.Problem(page));
            *length = before;
        }
    }

    [Fact]
    public void Bytes_ThatWereChanged_GiveAValueOfTheirLengthOrNone() => Seeds.Run(200, random =>
    {
        var text = Text(random.Next(), random.Next(300, 20_000));
        Assert.True(new ValueCompression().TryCompress(text.AsSpan(0, HeaderBytes), text.AsSpan(HeaderBytes), out var compressed));
        var bytes = compressed[CompressedValue.LengthBytes..].ToArray();
        var cut = random.Next(bytes.Length + 1);
        Assert.Equal(text, CompressedValue.TryRead(text.Length, bytes.AsSpan(0, cut), bytes.AsSpan(cut)));
        for (var changes = random.Next(1, 4); changes > 0; changes--)
            bytes[random.Next(bytes.Length)] = (byte)random.Next(256);
        var length = random.Next(2) == 0 ? text.Length : random.Next(20_000);
        var read = CompressedValue.TryRead(length, bytes.AsSpan(0, cut), bytes.AsSpan(cut));
        Assert.True(read is null || read.Length == length);
        // The result depends on nothing but the bytes.
        Assert.Equal(read, CompressedValue.TryRead(length, bytes, []));
    });

    private static int CompressedIn(PageStore store, TreeId tree = TreeId.Kv)
    {
        var count = 0;
        Visit(store.Roots.Published.Trees[(int)tree].Link);
        return count;

        void Visit(PageLink link)
        {
            if (link.Reference.IsNone)
                return;
            var page = store.Space.ResolveNode(&link);
            if (Page.Type(page) == PageType.Delta)
            {
                var fold = stackalloc byte[Page.Bytes];
                DeltaPage.Fold(fold, page, store.Space.ResolveBase(page));
                page = fold;
            }
            for (var index = 0; index < Page.Count(page); index++)
            {
                if (Page.Type(page) == PageType.Branch)
                    Visit(*TreePage.Child(page, index));
                else
                    count += TreePage.IsCompressed(Page.Cell(page, index)) ? 1 : 0;
            }
        }
    }

    private static void Fill(PageStore store, byte mark) => store.Apply(batch =>
    {
        for (var key = 0; key < Keys; key++)
            Put(batch, key, Value(key, mark));
    });

    private static void AssertHas(PageStore store, byte mark)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        for (var key = 0; key < Keys; key++)
            Assert.True(snapshot.TryGet(TreeId.Kv, ByteKeys.Of(key), out var value) && value.SequenceEqual(Value(key, mark)), $"Key {key}");
    }

    private static void Put(WriteBatch batch, int key, byte[] value)
    {
        var header = Math.Min(HeaderBytes, value.Length);
        batch.Put(TreeId.Kv, ByteKeys.Of(key), value.AsSpan(0, header), value.AsSpan(header));
    }

    private static byte[] Value(int key, byte mark) => Text((key * 251) + mark, 600 + (key % 10 * 40));

    /// <summary>Of eight words, so that less than half of it is left.</summary>
    internal static byte[] Text(int seed, int bytes)
    {
        var random = new Random(seed);
        var words = new byte[8 * 12];
        random.NextBytes(words);
        var text = new byte[bytes];
        for (var at = 0; at < bytes; at += 12)
            words.AsSpan(random.Next(8) * 12, Math.Min(12, bytes - at)).CopyTo(text.AsSpan(at));
        return text;
    }
}
