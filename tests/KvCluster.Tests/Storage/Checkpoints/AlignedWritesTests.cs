using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>
/// A checkpoint's writes are aligned to their length, so that the system keeps what each brings in one piece of memory, which it can map as a whole. They
/// began behind the meta pages before, and none was aligned.
/// </summary>
public sealed class AlignedWritesTests
{
    private const int WriteBytes = 64 << 10;
    private const int ValueBytes = 1_500;
    private const int Keys = 3_000;

    [Fact]
    public void Write_OfManyPages_CrossesNoBoundaryAndIsMostlyWhole()
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28, WriteBytes = WriteBytes }, new byte[16]);
        store.Apply(batch =>
        {
            for (var key = 0; key < Keys; key++)
                batch.Put(TreeId.Kv, ByteKeys.Of(key), new byte[key % 100 == 0 ? 3 * WriteBytes : ValueBytes]);
        });
        var whole = 0;
        disk.Fault = call =>
        {
            if (call is { Operation: "Write", Bytes: > 0 })
            {
                Assert.True(call.Offset / WriteBytes == (call.Offset + call.Bytes - 1) / WriteBytes, $"A write of {call.Bytes} bytes at {call.Offset} crosses "
                    + "a boundary.");
                whole += call.Bytes == WriteBytes ? 1 : 0;
            }
            return DiskFault.None;
        };
        store.CheckpointAll();
        Assert.InRange(whole, store.FileBytes / WriteBytes / 2, store.FileBytes / WriteBytes);
    }
}
