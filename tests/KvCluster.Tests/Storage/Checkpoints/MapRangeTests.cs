using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>The mapping of a data file grows with the file while it is open, also under readers.</summary>
public sealed class MapRangeTests
{
    private static readonly PageStoreOptions Small = new() { MapBytes = 1 << 20 };

    // A file was bounded by the range that was mapped at its open.
    [Fact]
    public void File_GrowingOverManyPieces_IsReadByReadersOfAllAges()
    {
        using var store = new ModelStore(Small);
        for (var round = 0; round < 12; round++)
        {
            // Some of the runs begin in one piece and end in the next.
            store.Batch(batch =>
            {
                for (var key = 0; key < 12; key++)
                    batch.Put(TreeId.Kv, [(byte)round, (byte)key], Bytes(round, key, 100_000));
            });
            store.Publish();
            store.OpenReader();
            store.Checkpoint();
        }
        Assert.True(store.Store.FileBytes > 12 << 20, $"The file has {store.Store.FileBytes} bytes.");
        store.Store.Verify();
        while (store.Readers > 0)
            store.CloseReader(0);
        store.Reopen();
        store.CheckPublished();
        store.Store.Verify();
    }

    [Fact]
    public void File_OnALocalDisk_GrowsOverManyPieces()
    {
        using var file = new DataFile(Small);
        for (var round = 1; round <= 12; round++)
        {
            file.Pages.Apply(batch =>
            {
                for (var key = 0; key < 12; key++)
                    batch.Put(TreeId.Kv, [(byte)round, (byte)key], Bytes(round, key, 100_000));
            });
            file.Checkpoint();
        }
        Assert.True(file.Pages.FileBytes > 12 << 20, $"The file has {file.Pages.FileBytes} bytes.");
        using var snapshot = file.Pages.Roots.OpenSnapshot();
        for (var round = 1; round <= 12; round++)
        {
            for (var key = 0; key < 12; key++)
                Assert.True(snapshot.TryGet(TreeId.Kv, [(byte)round, (byte)key], out var value) && value.SequenceEqual(Bytes(round, key, 100_000)));
        }
    }

    [Fact]
    [Trait("Turn", "1")]
    public void RandomOperations_WithSmallPieces_MatchTheModel() => Seeds.Run(3, random =>
    {
        using var store = new ModelStore(Small);
        var keys = KeyProfile.All[4];
        for (var step = 0; step < 120; step++)
        {
            store.Batch(batch =>
            {
                for (var change = 0; change < 40; change++)
                    batch.Put(TreeId.Kv, BitConverter.GetBytes(random.Next(2_000)), keys.Value(random));
            });
            store.Publish();
            if (store.Readers < 4)
                store.OpenReader();
            else
                store.CloseReader(random.Next(store.Readers));
            if (random.Next(4) == 0)
                store.Checkpoint();
            if (random.Next(40) == 0)
                store.Reopen();
        }
        store.Checkpoint();
        Assert.True(store.Store.FileBytes > 4 * Small.MapBytes, $"The file has {store.Store.FileBytes} bytes.");
        store.CheckPublished();
        store.Store.Verify();
    });

    /// <summary>A page that is written again is checked again, in whatever piece it is.</summary>
    [Fact]
    public void Read_OfAPageDamagedInALaterPiece_IsRefused()
    {
        using var store = new ModelStore(Small);
        Fill(store, 0, 400);
        store.Checkpoint();
        var last = store.Store.Free.UsedRuns()[^1];
        store.Reopen();
        store.Disk.FlipBit("data", ((last.First + last.Count - 3) * Page.Bytes) + 5_000);
        Assert.Throws<KvCluster.Storage.Encoding.CorruptStoreException>(store.CheckPublished);
    }

    [Fact]
    public void Write_WhenNoMoreCanBeMapped_IsAFullDiskUntilItCan()
    {
        using var store = new ModelStore(Small);
        Fill(store, 0, 80);
        store.Checkpoint();
        store.Disk.Fault = static call => call.Operation == "Map" ? DiskFault.Error : DiskFault.None;
        Fill(store, 80, 80);
        Assert.True(store.BeginCheckpoint());
        Assert.True(Assert.Throws<StorageIoException>(store.WriteCheckpoint).IsDiskFull);
        store.AbandonCheckpoint();
        store.CheckPublished();
        store.Store.Verify();
        store.Disk.Fault = null;
        store.Checkpoint();
        store.CheckPublished();
        store.Store.Verify();
    }

    private static void Fill(ModelStore store, int first, int count)
    {
        store.Batch(batch =>
        {
            for (var key = first; key < first + count; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), Bytes(key, 0, 8_000));
        });
        store.Publish();
    }

    private static byte[] Bytes(int round, int key, int count)
    {
        var bytes = new byte[count];
        new Random((round * 1_000) + key).NextBytes(bytes);
        return bytes;
    }
}
