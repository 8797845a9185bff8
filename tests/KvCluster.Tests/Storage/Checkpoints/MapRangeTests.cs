using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>While a data file is open, its mapped range limits its size. The range grows with the file from open to open.</summary>
public sealed class MapRangeTests
{
    private static readonly PageStoreOptions Small = new() { MapBytes = 1 << 20 };

    [Fact]
    public void Write_BeyondTheRange_IsAFullDiskUntilTheFileIsOpenedAgain()
    {
        using var disk = new SimulatedDisk();
        using (var store = PageStore.Create(disk, "data", Small, new byte[16]))
        {
            Fill(store, 1, 80);
            Write(store);
            Fill(store, 2, 80);
            var checkpoint = Begin(store);
            Assert.True(Assert.Throws<StorageIoException>(checkpoint.Write).IsDiskFull);
            store.AbandonCheckpoint(checkpoint);
            store.Verify();
        }
        using (var store = PageStore.Open(disk, "data", Small))
        {
            Assert.Equal(1ul, store.Covered.Etag.Change);
            Fill(store, 2, 80);
            Write(store);
            store.Verify();
        }
        using (var store = PageStore.Open(disk, "data", Small))
        {
            Assert.True(store.FileBytes > Small.MapBytes, $"The file has {store.FileBytes} bytes.");
            Assert.Equal(160ul, store.Roots.Count(TreeId.Kv));
            store.Verify();
        }
    }

    private static void Fill(PageStore store, ulong etag, int count)
    {
        var batch = store.Begin();
        for (var i = 0; i < count; i++)
            batch.Put(TreeId.Kv, BitConverter.GetBytes((etag << 32) + (ulong)i), new byte[8000]);
        store.Roots.Seal(batch, new Etag(0, etag));
        store.Roots.Publish(new Etag(0, etag));
    }

    private static Checkpoint Begin(PageStore store) =>
        store.BeginCheckpoint(etag => new CheckpointPosition(etag, default, 0), Etag.MaxValue)!;

    private static void Write(PageStore store)
    {
        var checkpoint = Begin(store);
        checkpoint.Write();
        store.FinishCheckpoint(checkpoint);
    }
}
