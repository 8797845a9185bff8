using System.Runtime.Versioning;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>The same expectations for the machine's file system and for the simulated one.</summary>
[UnsupportedOSPlatform("windows")]
public sealed class FileSystemTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public static TheoryData<string, bool> Kinds => new()
    {
        { "linux", false }, { "linux", true }, { "simulated", false },
    };

    public void Dispose() => _directory.Dispose();

    [Theory]
    [MemberData(nameof(Kinds))]
    public void File_WriteResizeReadMap_AreConsistent(string kind, bool direct)
    {
        var (files, path) = Make(kind);
        using var buffer = new AlignedBuffer(8192);
        buffer.Span.Fill(7);
        using (var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, direct, DataSync: true)))
        {
            file.Resize(16384);
            file.Write(buffer.Span, 4096);
            file.BeginWriteOut(4096, buffer.Length);
            file.Sync();
            Assert.Equal(16384, file.Length);
            CheckMap(file);
        }
        using (var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting)))
        {
            var read = new byte[20_000];
            Assert.Equal(16384, file.Read(read, 0));
            Assert.Equal((0, 7, 7, 0), (read[4095], read[4096], read[12287], read[12288]));
            Assert.Equal(384, file.Read(read, 16000));
            Assert.Equal(0, file.Read(read, 20000));
            file.Resize(4097);
            Assert.Equal(4097, file.Length);
        }
        Assert.Throws<StorageIoException>(() => files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew)));
        Assert.Throws<StorageIoException>(() => files.Open(path + "-none", new StorageFileOptions(StorageFileMode.OpenExisting)));
    }

    // The length of a data file with holes was shown as its size on the disk.
    [Theory]
    [MemberData(nameof(Kinds))]
    public void File_WithAHole_TakesLessThanItsLength(string kind, bool direct)
    {
        var (files, path) = Make(kind);
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, direct));
        file.Resize(1 << 20);
        file.Sync();
        Assert.InRange(file.AllocatedBytes, 1 << 20, 2 << 20);
        var before = file.AllocatedBytes;
        if (file.TryMakeHole(256 << 10, 512 << 10))
            Assert.Equal(before - (512 << 10), file.AllocatedBytes);
        Assert.Equal(1 << 20, file.Length);
    }

    [Theory]
    [MemberData(nameof(Kinds))]
    public void Names_CreateRenameDeleteList_AreConsistent(string kind, bool direct)
    {
        if (direct)
            return;
        var (files, path) = Make(kind);
        files.CreateDirectory(path);
        files.CreateDirectory(path);
        Create(files, $"{path}/b");
        Create(files, $"{path}/a");
        files.CreateDirectory($"{path}/sub");
        Create(files, $"{path}/sub/x");
        Assert.Equal(["a", "b", "sub"], files.List(path));
        files.Rename($"{path}/a", $"{path}/b");
        files.Rename($"{path}/sub", $"{path}/moved");
        files.SyncDirectory(path);
        Assert.Equal(["b", "moved"], files.List(path));
        Assert.Equal(
            (false, true, true, false),
            (files.FileExists($"{path}/a"), files.FileExists($"{path}/moved/x"), files.DirectoryExists($"{path}/moved"), files.DirectoryExists($"{path}/b")));
        files.CreateDirectory($"{path}/other");
        files.Rename($"{path}/moved", $"{path}/other/again");
        Assert.Equal((true, false), (files.FileExists($"{path}/other/again/x"), files.DirectoryExists($"{path}/moved")));
        files.Delete($"{path}/b");
        files.Delete($"{path}/b");
        files.DeleteDirectory($"{path}/other");
        files.DeleteDirectory($"{path}/other");
        Assert.Empty(files.List(path));
        Assert.Throws<StorageIoException>(() => files.List(path + "-none"));
    }

    // Any error of the first direct read was taken to mean that there is no direct I/O. After a bad sector the journal was written through the page cache.
    [Theory]
    [InlineData(22, true)] // EINVAL
    [InlineData(95, true)] // EOPNOTSUPP
    [InlineData(5, false)] // EIO
    [InlineData(4, false)] // EINTR
    [InlineData(13, false)] // EACCES
    [InlineData(19, false)] // ENODEV
    [InlineData(28, false)] // ENOSPC
    public void SaysThatNothingIsDirect_AnyError_IsTrueOnlyIfDirectIoIsMissing(int error, bool says) =>
        Assert.Equal(says, LinuxFileSystem.SaysThatNothingIsDirect(error));

    /// <summary>Everybody on the machine could read what all callers had stored.</summary>
    [Fact]
    public void Created_FilesAndDirectories_AreForThisUserOnly()
    {
        var home = Path.Combine(_directory.Path, "home", "data");
        DurableDirectory.Create(home);
        using var held = DirectoryLock.Take(home);
        Create(LocalDisk.Instance, Path.Combine(home, "buffered"));
        LocalDisk.Instance.Open(Path.Combine(home, "direct"), new StorageFileOptions(StorageFileMode.CreateNew, Direct: true)).Dispose();
        LocalDisk.Instance.CreateDirectory(Path.Combine(home, "state"));
        const UnixFileMode File = UnixFileMode.UserRead | UnixFileMode.UserWrite, Directory = File | UnixFileMode.UserExecute;
        Assert.All([Path.GetDirectoryName(home)!, home, Path.Combine(home, "state")], path => Assert.Equal(Directory, System.IO.File.GetUnixFileMode(path)));
        Assert.All(["buffered", "direct", DirectoryLock.FileName], name => Assert.Equal(File, System.IO.File.GetUnixFileMode(Path.Combine(home, name))));
    }

    /// <summary>
    /// An operator may have given a directory to a group on purpose, for example for backups. It stays as it is, and new files in it are for this user only.
    /// </summary>
    [Fact]
    public void Create_DirectoryThatExists_KeepsItsRights()
    {
        const UnixFileMode Shared = UnixFileMode.UserRead
            | UnixFileMode.UserWrite | UnixFileMode.UserExecute | UnixFileMode.GroupRead | UnixFileMode.GroupExecute;
        var home = Path.Combine(_directory.Path, "home");
        Directory.CreateDirectory(home);
        File.SetUnixFileMode(home, Shared);
        DurableDirectory.Create(home);
        DirectoryLock.Take(home).Dispose();
        Assert.Equal(Shared, File.GetUnixFileMode(home));
    }

    [Theory]
    [InlineData(true, true, true, true)]
    [InlineData(false, true, true, false)]
    [InlineData(true, false, true, false)]
    [InlineData(true, true, false, false)]
    public void Obstacle_OnAnotherSystem_NamesTheOneThatIsNeeded(bool isLinux, bool is64Bit, bool hasCalls, bool runs)
    {
        var obstacle = LocalDisk.ObstacleOn(isLinux, is64Bit, () => isLinux ? hasCalls : throw new DllNotFoundException());
        if (runs)
            Assert.Null(obstacle);
        else
            Assert.Contains("Linux with glibc", obstacle);
    }

    [Fact]
    public void Simulated_PowerLoss_KeepsOnlySyncedData()
    {
        using var disk = new KvCluster.Disk.SimulatedDisk();
        disk.CreateDirectory("/d");
        disk.SyncDirectory("/");
        using (var file = disk.Open("/d/synced", new StorageFileOptions(StorageFileMode.CreateNew)))
        {
            file.Write([1, 2, 3], 0);
            file.Sync();
            disk.SyncDirectory("/d");
            file.Write([9], 1);
        }
        Create(disk, "/d/lost");
        disk.Restart(KvCluster.Disk.UnsyncedWrites.Dropped);
        Assert.Equal(["synced"], disk.List("/d"));
        Assert.Equal([1, 2, 3], disk.ReadAll("/d/synced"));
    }

    private static void Create(IFileSystem files, string path) => files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();

    private static unsafe void CheckMap(IStorageFile file)
    {
        var map = file.Map(0, 1 << 30);
        var end = file.Map(4096, 64 << 10);
        file.ReadIntoMap(map, 0, file.Length);
        file.ReadIntoMap(end + 4096, 8192, 8192);
        Assert.Equal((0, 7, 7), (map[4095], map[4096], end[0]));
        var told = new byte[4];
        if (file.TryTellInMemory(map, 0, file.Length, told))
            Assert.All(told[..(int)(file.Length / Environment.SystemPageSize)], static page => Assert.Equal(1, page & 1));
        file.Resize(20480);
        using var block = new AlignedBuffer(4096);
        block.Span.Fill(5);
        file.Write(block.Span, 16384);
        Assert.Equal((5, 5), (map[16384], end[16384 - 4096]));
        file.Resize(16384);
    }

    private (IFileSystem Files, string Path) Make(string kind) => kind switch
    {
        "linux" => (LinuxFileSystem.Instance, Path.Combine(_directory.Path, "file")),
        _ => (new KvCluster.Disk.SimulatedDisk(), "/file"),
    };
}
