using System.Text;
using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The size of a data file compared with the bytes put into it. The limit is 1.6 times.</summary>
public sealed class FileSizeTests
{
    [Fact]
    public void SortedPaths_TakeLessThanTheirBytes()
    {
        var records = Paths(40_000);
        Assert.InRange(Ratio(records), 0.4, 0.95);
    }

    /// <summary>Many callers load a sorted file, and its chunks overtake each other.</summary>
    [Fact]
    public void SortedPaths_InDisorderedChunks_TakeLittleMoreThanTheirBytes()
    {
        var chunks = Paths(40_000).Chunk(16).ToArray();
        var random = new Random(1);
        for (var index = 0; index + 64 < chunks.Length; index += 64)
            random.Shuffle(chunks.AsSpan(index, 64));
        Assert.InRange(Ratio(chunks.SelectMany(chunk => chunk)), 0.4, 1.3);
    }

    [Fact]
    public void KilobyteValues_UnderRandomKeys_FillPagesWell()
    {
        var random = new Random(2);
        var records = Enumerable.Range(0, 20_000).Select(_ =>
        {
            var key = new byte[16];
            random.NextBytes(key);
            return (key, new byte[1100]);
        });
        Assert.InRange(Ratio(records.ToList()), 1.0, 1.45);
    }

    /// <summary>
    /// Computed from FORMAT.md as node/Storage/Embedded/README.md does for up to a billion keys. They begin with the number of their tree, as those of an
    /// embedded store. The keys of a page have all but their last digits in common, so each takes a head, a slot and a cell without a rest.
    /// </summary>
    [Fact]
    public void SortedKeys_TakeThePagesThatTheFormatImplies()
    {
        const int Keys = 200_000, Body = Page.Bytes - Page.HeaderBytes, HeadAndSlot = 8 + 2, LeafCell = 2 + 2 + 5 + 100, BranchCell = 16, PrefixMax = 24;
        var records = Enumerable.Range(0, Keys).Select(static number => (Encoding.ASCII.GetBytes($"\0\0\0\u0001key-{number:d12}"), new byte[100])).ToList();
        var pages = (long)Math.Round(Ratio(records) * records.Sum(static record => record.Item1.Length + record.Item2.Length) / Page.Bytes);
        var computed = 0L;
        for (var (level, each) = (Keys, (Body - PrefixMax) / (HeadAndSlot + LeafCell)); level > 1; each = (Body - PrefixMax) / (HeadAndSlot + BranchCell))
            computed += level = (level + each - 1) / each;
        // Two meta pages, and what the checkpoint before this one has left.
        Assert.InRange(pages, computed, computed * 102 / 100);
    }

    private static List<(byte[] Key, byte[] Value)> Paths(int count) =>
    [
        .. Enumerable.Range(0, count)
            .Select(i => $"files/usr/share/doc/package-{i / 40:d5}/examples/{i % 40 * 7919 % 1000:d3}-{i:x}.html")
            .Order(StringComparer.Ordinal)
            .Select(path => (Encoding.ASCII.GetBytes(path), Encoding.ASCII.GetBytes($"doc/package-{path.Length}-of-some-section"))),
    ];

    private static double Ratio(IEnumerable<(byte[] Key, byte[] Value)> records)
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        byte[] header = [0, 1, 200, 200, 1];
        var raw = 0L;
        foreach (var chunk in records.Chunk(256))
        {
            store.Apply(batch =>
            {
                foreach (var (key, value) in chunk)
                {
                    batch.Put(TreeId.Kv, key, header, value);
                    raw += key.Length + value.Length;
                }
            });
        }
        store.CheckpointAll();
        store.Verify();
        return (double)store.FileBytes / raw;
    }
}
