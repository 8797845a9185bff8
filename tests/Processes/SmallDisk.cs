using System.Globalization;

namespace KvCluster.Processes;

/// <summary>
/// A file system of a few MiB for one node's or store's data: a mounted ext4 image. The image is on a small tmpfs without space for all of it, so a test can
/// fill the device itself. A write that finds no space there is refused, even in place. Needs root.
/// </summary>
internal sealed class SmallDisk : IAsyncDisposable
{
    // In bytes: for what others may take between a look and the allocation, and what file systems reserve.
    private const long FilledByWriting = 32 << 20;

    private readonly TemporaryDirectory _folder = new();

    /// <summary>The directory in which the system takes write limits of processes. Not every system has this version of it.</summary>
    public const string Throttles = "/sys/fs/cgroup/blkio";

    private SmallDisk()
    {
    }

    /// <summary>A directory for a node's data.</summary>
    public string Data => Path.Combine(Mount, "node");

    // A directory there is a group of processes. An empty group can be removed.
    private string Throttle => Path.Combine(Throttles, Path.GetFileName(_folder.Path));

    private string Device => Path.Combine(_folder.Path, "device");

    private string Image => Path.Combine(Device, "image");

    private string Mount => Path.Combine(_folder.Path, "mount");

    /// <param name="mebibytes">The size of the file system.</param>
    /// <param name="deviceMebibytes">The real size of the device. If it is larger, the device is never full.</param>
    public static async Task<SmallDisk> CreateAsync(int mebibytes, int deviceMebibytes)
    {
        var disk = new SmallDisk();
        try
        {
            Directory.CreateDirectory(disk.Device);
            Directory.CreateDirectory(disk.Mount);
            await RunAsync("mount", "-t", "tmpfs", "-o", $"size={deviceMebibytes.ToString(CultureInfo.InvariantCulture)}m", "tmpfs", disk.Device);
            await using (var file = File.Create(disk.Image))
                file.SetLength((long)mebibytes << 20);
            await RunAsync("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", disk.Image);
            await RunAsync("mount", "-o", "loop", disk.Image, disk.Mount);
            return disk;
        }
        catch
        {
            await disk.DisposeAsync();
            throw;
        }
    }

    /// <summary>
    /// One that can grow: a tmpfs. An ext4 that is mounted is only enlarged for processes that may exceed limits of the system, and in containers root may not.
    /// </summary>
    /// <param name="mebibytes">The size of the file system.</param>
    public static async Task<SmallDisk> CreateGrowingAsync(int mebibytes)
    {
        var disk = new SmallDisk();
        try
        {
            Directory.CreateDirectory(disk.Mount);
            await RunAsync("mount", "-t", "tmpfs", "-o", $"size={mebibytes.ToString(CultureInfo.InvariantCulture)}m", "tmpfs", disk.Mount);
            return disk;
        }
        catch
        {
            await disk.DisposeAsync();
            throw;
        }
    }

    /// <summary>Fills the file system. Most of it is only allocated, because writing would take minutes on a busy machine.</summary>
    public void Fill()
    {
        var allocated = Math.Max(0, new DriveInfo(Mount).AvailableFreeSpace - FilledByWriting);
        using var file = new FileStream(
            Path.Combine(Mount, "filler"), new FileStreamOptions { Mode = FileMode.Create, Access = FileAccess.Write, PreallocationSize = allocated });
        // Allocation can fill no more.
        file.Position = allocated;
        var zeros = new byte[64 << 10];
        try
        {
            while (true)
            {
                file.Write(zeros);
                file.Flush(flushToDisk: true);
            }
        }
        catch (IOException)
        {
            // Full, as requested.
        }
    }

    /// <summary>Fills the file system up to this much, with zeros that are really there.</summary>
    public void FillExcept(long bytesFree)
    {
        using var file = File.Create(Path.Combine(Mount, "filler"));
        var zeros = new byte[64 << 10];
        for (var left = new DriveInfo(Mount).AvailableFreeSpace - bytesFree; left > 0; left -= zeros.Length)
            file.Write(zeros);
        file.Flush(flushToDisk: true);
    }

    public void Empty() => File.Delete(Path.Combine(Mount, "filler"));

    /// <summary>Enlarges the file system while it is in use, as an operator or a storage class does with a volume. Only of one that can grow.</summary>
    /// <param name="mebibytes">Its size from now on.</param>
    public Task GrowAsync(int mebibytes) => RunAsync("mount", "-o", $"remount,size={mebibytes.ToString(CultureInfo.InvariantCulture)}m", Mount);

    /// <summary>Fills the device. From now on blocks that were never written find no space.</summary>
    public void FillDevice()
    {
        using var file = File.Create(Path.Combine(Device, "filler"));
        var zeros = new byte[64 << 10];
        try
        {
            while (true)
                file.Write(zeros);
        }
        catch (IOException)
        {
            // Full, as requested.
        }
    }

    /// <summary>Limits a process to this many writes a second past the page cache.</summary>
    public async Task SlowDownAsync(int process, int writesPerSecond)
    {
        var (_, device, _) = await Tools.RunAsync("findmnt", "--noheadings", "--output", "MAJ:MIN", Mount);
        Directory.CreateDirectory(Throttle);
        await File.WriteAllTextAsync(
            Path.Combine(Throttle, "blkio.throttle.write_iops_device"), $"{device.Trim()} {writesPerSecond.ToString(CultureInfo.InvariantCulture)}");
        await File.WriteAllTextAsync(Path.Combine(Throttle, "cgroup.procs"), process.ToString(CultureInfo.InvariantCulture));
    }

    /// <summary>Removes the limit of a process.</summary>
    public static Task SpeedUpAsync(int process) =>
        File.WriteAllTextAsync(Path.Combine(Throttles, "cgroup.procs"), process.ToString(CultureInfo.InvariantCulture));

    public void EmptyDevice() => File.Delete(Path.Combine(Device, "filler"));

    public async ValueTask DisposeAsync()
    {
        foreach (var mount in new[] { Mount, Device })
            await Tools.RunAsync("umount", mount);
        if (Directory.Exists(Throttle))
            Directory.Delete(Throttle);
        _folder.Dispose();
    }

    private static async Task RunAsync(string program, params string[] arguments)
    {
        var (exitCode, _, error) = await Tools.RunAsync(program, arguments);
        if (exitCode != 0)
            throw new InvalidOperationException($"{program} {string.Join(' ', arguments)}: {error}");
    }
}
