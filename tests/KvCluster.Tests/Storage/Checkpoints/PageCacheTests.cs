using System.Runtime.InteropServices;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>What a checkpoint leaves in the page cache.</summary>
public sealed unsafe partial class PageCacheTests
{
    // Checkpoints bypassed the page cache, so every changed page was cold afterwards. With 10 million keys in a cluster of three, the gets of 64
    // callers fell to a tenth, and the writer thread spent so long in page faults that leaders lost their shards.
    [Fact]
    public void Checkpoint_WithDefaultOptions_LeavesItsPagesInThePageCache()
    {
        if (!OperatingSystem.IsLinux())
            return;
        Assert.False(new PageStoreOptions().Direct);
        using var file = new DataFile();
        file.Pages.Apply(batch =>
        {
            for (var key = 0; key < 20_000; key++)
                batch.Put(TreeId.Kv, BitConverter.GetBytes(key), new byte[100]);
        });
        file.Checkpoint();

        using var reader = LocalDisk.Instance.Open(file.FilePath, new StorageFileOptions(StorageFileMode.OpenExisting));
        var pages = (int)(reader.Length / Environment.SystemPageSize);
        var resident = new byte[pages];
        fixed (byte* states = resident)
            Assert.Equal(0, Resident(reader.Map(0, reader.Length), (nuint)pages * (nuint)Environment.SystemPageSize, states));
        // Pages that were allocated ahead and never written are not in memory.
        Assert.True(resident.Count(state => (state & 1) != 0) * (long)Environment.SystemPageSize > 20_000 * 100, $"{resident.Count(state => (state & 1) != 0)} "
            + $"of {pages} system pages are in memory.");
    }

    [LibraryImport("libc", EntryPoint = "mincore", SetLastError = true)]
    private static partial int Resident(byte* address, nuint length, byte* states);
}
