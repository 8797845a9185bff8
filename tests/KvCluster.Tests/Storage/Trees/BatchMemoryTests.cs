using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>What a store's only batch takes while the store rests, as most stores of a node do.</summary>
public sealed class BatchMemoryTests
{
    private const int BytesMax = 32 << 10;

    // Each of a store's seven trees had memory for the copies of two pages: 11 MB in a node with 100 shards that nobody used.
    [Fact]
    public void Batch_OfAStoreThatChangesNothing_TakesLittleMemory()
    {
        using var disk = new SimulatedDisk();
        using var file = disk.Open("data", new StorageFileOptions(StorageFileMode.CreateNew));
        using var pool = new ScratchPool(0);
        var space = new PageSpace(file, 1 << 30);
        var deltas = new LeafDeltas(space, pool, ScratchPool.BlockBytesMax, staysWhole: null);
        WriteBatch? batch = null;
        // The first one may also be the first of its kind, for which more is allocated once.
        for (var pass = 0; pass < 2; pass++)
        {
            var allocated = Allocations.Of(() => batch = new WriteBatch(space, pool, deltas, dividesValues: true, compression: null));
            Assert.True(pass == 0 || allocated < BytesMax + Allocations.Context, "A batch that was not used takes too much.");
        }
        Assert.False(batch!.IsOpen);
    }
}
