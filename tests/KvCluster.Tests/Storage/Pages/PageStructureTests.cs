using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Pages with valid checksums and invalid content, as a faulty or malicious peer may send in a snapshot.</summary>
public sealed unsafe class PageStructureTests
{
    // Slots and lengths of a page were used unchecked. One that pointed outside its page was read or copied from there, and the process crashed.
    [Fact]
    public void Read_CorruptedPagesWithValidChecksums_ReturnsValuesOrDamageAndStaysInThePage() => Seeds.Run(30, random =>
    {
        using var disk = new SimulatedDisk();
        var options = new PageStoreOptions { MapBytes = 1 << 26, CompressesValues = random.Next(2) == 0 };
        Fill(disk, options, random);
        var bytes = Content(disk);
        var numbers = Enumerable.Range(2, (bytes.Length / Page.Bytes) - 2).Where(number => bytes[(number * Page.Bytes) + 4] is 1 or 2).ToArray();
        for (var changes = random.Next(1, 4); changes > 0; changes--)
        {
            var page = bytes.AsSpan(numbers[random.Next(numbers.Length)] * Page.Bytes, Page.Bytes);
            // The fields of the header, the heads, the slots, and the lengths in cells are the most sensitive.
            var at = random.Next(3) == 0 ? random.Next(Page.Bytes - 1) : 4 + random.Next(600);
            page[at] = (byte)random.Next(256);
        }
        Mend(bytes);
        using (var file = disk.Open("data", new StorageFileOptions(StorageFileMode.OpenExisting)))
            file.Write(bytes, 0);
        try
        {
            using var store = PageStore.Open(disk, "data", options);
            Walk(store);
            store.Verify();
        }
        catch (CorruptStoreException)
        {
            // Reported as damage, as expected.
        }
    });

    [Fact]
    public void Problem_PagesMadeByABatch_IsNone() => Seeds.Run(1, random =>
    {
        foreach (var profile in KeyProfile.All)
        {
            using var disk = new SimulatedDisk();
            using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
            for (var round = 0; round < 3; round++)
            {
                PutAndCheckpoint(store, profile, random, puts: 300);
                store.Verify();
            }
        }
    });

    // The root of a tree and the pages of the free map were read wherever a meta page with a valid checksum placed them, even outside the mapping.
    [Theory]
    [InlineData(1)]
    [InlineData(Page.Bytes)]
    [InlineData((5 * Page.Bytes) + 1)]
    [InlineData(5_000ul * Page.Bytes)]
    [InlineData(ulong.MaxValue - Page.Bytes + 1)]
    public void Open_MetaPageThatRefersToNoPage_IsDamage(ulong reference)
    {
        foreach (var change in (Func<MetaPage, MetaPage>[])[meta => meta with { FreeDirectory = new PageRef(reference) },
            meta => meta with { Trees = [.. meta.Trees.Select(tree => tree with { Link = tree.Link with { Reference = new PageRef(reference) } })] }])
        {
            using var disk = new SimulatedDisk();
            var options = new PageStoreOptions { MapBytes = 1 << 26 };
            Fill(disk, options, new Random(1));
            using (var file = disk.Open("data", new StorageFileOptions(StorageFileMode.OpenExisting)))
            {
                var page = new byte[Page.Bytes];
                for (var number = 0; number < 2; number++)
                {
                    file.Read(page, number * Page.Bytes);
                    change(MetaPage.TryDecode(page, "data")!).Encode(page);
                    file.Write(page, number * Page.Bytes);
                }
            }

            Assert.Throws<CorruptStoreException>(() => PageStore.Open(disk, "data", options));
        }
    }

    [Fact]
    public void Problem_RunLongerThanAnyValue_IsReported()
    {
        using var memory = new AlignedBuffer(Page.Bytes);
        fixed (byte* page = memory.Span)
        {
            Page.Type(page) = PageType.Overflow;
            Page.ValueLength(page) = uint.MaxValue;
            Assert.Equal("its value length of 4294967295 bytes is too large", PageStructure.Problem(page));
        }
    }

    // An empty key was taken for sound, and ended the recovery of a whole replica, because no batch takes it.
    [Fact]
    public void Problem_LeafWithAnEmptyKey_IsReported()
    {
        var page = stackalloc byte[Page.Bytes];
        Page.Format(page, PageType.Leaf, []);
        TreePage.InsertInline(page, 0, [1], 0);
        Assert.Null(PageStructure.Problem(page));
        TreePage.InsertInline(page, 0, [], 0);
        Assert.Equal("the key of entry 0 is empty", PageStructure.Problem(page));
    }

    private static void Fill(SimulatedDisk disk, PageStoreOptions options, Random random)
    {
        using var store = PageStore.Create(disk, "data", options, new byte[16]);
        disk.SyncDirectory("");
        var profile = options.CompressesValues ? KeyProfile.Compressible : KeyProfile.All[random.Next(KeyProfile.All.Length)];
        PutAndCheckpoint(store, profile, random, puts: 200);
    }

    private static void PutAndCheckpoint(PageStore store, KeyProfile profile, Random random, int puts)
    {
        store.Apply(batch =>
        {
            for (var put = 0; put < puts; put++)
            {
                var value = profile.Value(random);
                var header = Math.Min(value.Length, 6);
                batch.Put(TreeId.Kv, profile.Key(random), value.AsSpan(0, header), value.AsSpan(header));
            }
        });
        store.CheckpointAll();
    }

    private static byte[] Content(SimulatedDisk disk)
    {
        using var file = disk.Open("data", new StorageFileOptions(StorageFileMode.OpenExisting));
        var bytes = new byte[file.Length];
        file.Read(bytes, 0);
        return bytes;
    }

    /// <summary>Recomputes the checksum of every page and its copy in the parent, from the leaves up.</summary>
    private static void Mend(byte[] bytes)
    {
        fixed (byte* file = bytes)
        {
            // In a new file children have lower numbers than their parents, because they were written first.
            for (var offset = 2L * Page.Bytes; offset < bytes.Length; offset += Page.Bytes)
            {
                var page = file + offset;
                if (Page.Type(page) is not (PageType.Leaf or PageType.Branch))
                    continue;
                for (var i = 0; i < Page.Count(page) && Page.HeaderBytes + ((i + 1) * sizeof(ulong)) < Page.Bytes; i++)
                {
                    var slot = Page.HeaderBytes + (Page.Count(page) * sizeof(ulong)) + (i * sizeof(ushort)) is var place && place + 2 <= Page.Bytes
                        ? *(ushort*)(page + place)
                        : Page.Bytes;
                    if (Page.Type(page) == PageType.Branch && slot + 12 <= Page.Bytes
                        && *(ulong*)(page + slot) is var child && child < (ulong)bytes.Length - Page.Bytes && child % Page.Bytes == 0)
                        *(uint*)(page + slot + 8) = Page.Checksum(file + child);
                }
                Page.Number(page) = (ulong)(offset / Page.Bytes);
                Page.Checksum(page) = Page.ComputeChecksum(page, Page.Bytes);
            }
            for (var number = 0; number < 2; number++)
            {
                if (MetaPage.TryDecode(bytes.AsSpan(number * Page.Bytes, Page.Bytes), "data") is not { } meta || meta.Trees[0].Link.Reference.IsNone)
                    continue;
                meta.Trees[0].Link.Checksum = Page.Checksum(file + meta.Trees[0].Link.Reference.Value);
                meta.Encode(bytes.AsSpan(number * Page.Bytes));
            }
        }
    }

    private static void Walk(PageStore store)
    {
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        var sum = 0L;
        for (var steps = 0; steps < 10_000 && cursor.MoveNext(); steps++)
        {
            foreach (var value in cursor.Value)
                sum += value;
            snapshot.TryGet(TreeId.Kv, cursor.Key, out _);
        }
        Assert.True(sum >= 0);
    }
}
