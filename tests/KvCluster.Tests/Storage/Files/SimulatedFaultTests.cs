using KvCluster.Disk;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>The faults of the simulated disk, on which the tests of the engine and the simulation rely.</summary>
public sealed class SimulatedFaultTests : IDisposable
{
    private const string Path = "/file";
    private readonly SimulatedDisk _disk = new();

    public void Dispose() => _disk.Dispose();

    [Fact]
    public void Sync_FailsAndLosesData_SucceedsLaterAndTheDataIsGoneAfterARestart()
    {
        using (var file = Created([1, 1, 1]))
        {
            file.Write([2], 0);
            Next("Sync", DiskFault.SyncLosesData);
            Assert.Throws<StorageIoException>(file.Sync);
            file.Write([3], 1);
            file.Sync();
            Assert.Equal([2, 3, 1], _disk.ReadAll(Path));
        }
        _disk.Restart(UnsyncedWrites.Kept);
        Assert.Equal([1, 3, 1], _disk.ReadAll(Path));
        Assert.Equal(1, _disk.CountOf(DiskFault.SyncLosesData));
    }

    [Fact]
    public void Write_Short_LeavesSomeFirstSectorsAndFails()
    {
        using var file = Created(new byte[2048]);
        var ones = new byte[2048];
        Array.Fill(ones, (byte)1);
        Next("Write", DiskFault.ShortWrite);
        Assert.Throws<StorageIoException>(() => file.Write(ones, 0));
        Assert.Equal((1, 0), (_disk.ReadAll(Path)[1023], _disk.ReadAll(Path)[1024]));
    }

    [Fact]
    public void Write_LostOrMisdirected_ReportsSuccess()
    {
        using var file = Created(new byte[32 << 10]);
        Next("Write", DiskFault.LostWrite);
        file.Write([1], 0);
        Assert.DoesNotContain((byte)1, _disk.ReadAll(Path));
        Next("Write", DiskFault.MisdirectedWrite);
        file.Write([1], 16 << 10);
        Assert.Equal((1, 0), (_disk.ReadAll(Path)[8 << 10], _disk.ReadAll(Path)[16 << 10]));
    }

    [Fact]
    public unsafe void Read_BadSector_FailsUntilItIsRewritten()
    {
        using var file = Created(new byte[4096]);
        var map = file.Map(0, 1 << 20);
        _disk.MakeUnreadable(Path, 1000, 1);
        var read = new byte[512];
        Assert.Throws<StorageIoException>(() => file.Read(read, 512));
        Assert.Throws<StorageIoException>(() => file.Read(read, 100));
        Assert.Throws<StorageIoException>(() => file.ReadIntoMap(map, 0, 4096));
        Assert.Equal(512, file.Read(read, 1024));
        file.ReadIntoMap(map + 1024, 1024, 3072);
        file.Write(new byte[100], 950);
        Assert.Throws<StorageIoException>(() => file.Read(read, 512));
        file.Write(new byte[512], 512);
        file.ReadIntoMap(map, 0, 4096);
    }

    [Fact]
    public void Direct_NotAligned_IsRefused()
    {
        using var file = _disk.Open(Path, new StorageFileOptions(StorageFileMode.CreateNew, Direct: true));
        Assert.True(file.IsDirect);
        using var buffer = new AlignedBuffer(8192);
        file.Write(buffer.Span, 4096);
        Assert.Throws<StorageIoException>(() => file.Write(buffer.Span, 512));
        Assert.Throws<StorageIoException>(() => file.Write(buffer.Span[..512], 0));
        Assert.Throws<StorageIoException>(() => file.Read(buffer.Span[512..4608], 0));
        Assert.Equal(8192, file.Read(buffer.Span, 0));
    }

    [Fact]
    public void PowerLoss_UnsyncedDirectoryChanges_LeavesAnySubset()
    {
        var seen = new HashSet<string>();
        for (var seed = 0; seed < 200; seed++)
        {
            using var disk = new SimulatedDisk();
            disk.Open("/a", new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
            disk.Open("/b", new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
            disk.SyncDirectory("/");
            disk.Rename("/a", "/c");
            disk.Delete("/b");
            disk.Open("/d", new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
            disk.Restart(UnsyncedWrites.Reordered, seed);
            seen.Add(string.Join(' ', disk.List("/")));
        }
        Assert.Equal(
            ["a b", "a b d", "a", "a d", "b c", "b c d", "c", "c d"],
            seen.Order(StringComparer.Ordinal).OrderBy(names => names[0]).ThenBy(names => !names.Contains('b') && names[0] == 'a'));
    }

    /// <summary>Both names until both directories are synced, but never none.</summary>
    [Theory]
    [InlineData("", "x| x|y |y")]
    [InlineData("/from", "|y")]
    [InlineData("/to", "x|y |y")]
    [InlineData("/to /from", "|y")]
    public void PowerLoss_MoveToAnotherDirectory_LeavesAName(string synced, string states)
    {
        var seen = new HashSet<string>();
        for (var seed = 0; seed < 200; seed++)
        {
            using var disk = new SimulatedDisk();
            disk.CreateDirectories("/from");
            disk.CreateDirectories("/to");
            disk.Open("/from/x", new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
            disk.SyncDirectory("/from");
            disk.Rename("/from/x", "/to/y");
            foreach (var directory in synced.Split(' ', StringSplitOptions.RemoveEmptyEntries))
                disk.SyncDirectory(directory);
            disk.Restart(UnsyncedWrites.Reordered, seed);
            seen.Add($"{string.Join(' ', disk.List("/from"))}|{string.Join(' ', disk.List("/to"))}");
        }
        Assert.Equal(states.Split(' '), seen.Order(StringComparer.Ordinal));
    }

    [Fact]
    public void AnyCall_Error_FailsAndDoesNothing()
    {
        Created([1]).Dispose();
        _disk.Fault = static _ => DiskFault.Error;
        Assert.Throws<StorageIoException>(() => _disk.Delete(Path));
        Assert.Throws<StorageIoException>(() => _disk.Rename(Path, "/other"));
        Assert.Throws<StorageIoException>(() => _disk.SyncDirectory("/"));
        Assert.Throws<StorageIoException>(() => _disk.Open("/other", new StorageFileOptions(StorageFileMode.CreateNew)));
        using (var file = _disk.Open(Path, new StorageFileOptions(StorageFileMode.OpenExisting)))
        {
            Assert.Throws<StorageIoException>(() => file.Read(new byte[1], 0));
            Assert.Throws<StorageIoException>(() => file.Resize(9));
            Assert.Throws<StorageIoException>(() => file.Write([2], 0));
        }
        Assert.Equal(7, _disk.CountOf(DiskFault.Error));
        Assert.Equal(["file"], _disk.List("/"));
        Assert.Equal([1], _disk.ReadAll(Path));
    }

    private IStorageFile Created(byte[] content)
    {
        var file = _disk.Open(Path, new StorageFileOptions(StorageFileMode.CreateNew));
        file.Write(content, 0);
        file.Sync();
        _disk.SyncDirectory("/");
        return file;
    }

    /// <summary>Only the next call of this kind fails.</summary>
    private void Next(string operation, DiskFault fault) => _disk.Fault = call =>
    {
        if (call.Operation != operation)
            return DiskFault.None;
        _disk.Fault = null;
        return fault;
    };
}
