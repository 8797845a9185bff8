using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>
/// A file system of a few MiB for one node's data: an ext4 image, mounted. The image lies on a small tmpfs without room for all of it, so that a test can have
/// the device itself be full: a write that finds no room there is refused for want of it, also in place. Needs root.
/// </summary>
internal sealed class SmallDisk : IAsyncDisposable
{
    // In bytes: what others may take between a look and the allocation, and file systems keep for themselves.
    private const long FilledByWriting = 32 << 20;

    private readonly TemporaryDirectory _folder = new();

    /// <summary>Where the system takes limits of what processes write; not every system has this version of it.</summary>
    public const string Throttles = "/sys/fs/cgroup/blkio";

    private SmallDisk()
    {
    }

    /// <summary>Where a node's data can lie.</summary>
    public string Data => Path.Combine(Mount, "node");

    // A directory there is a group of processes; an empty group can be removed.
    private string Throttle => Path.Combine(Throttles, Path.GetFileName(_folder.Path));

    private string Device => Path.Combine(_folder.Path, "device");

    private string Mount => Path.Combine(_folder.Path, "mount");

    /// <param name="mebibytes">Size that the file system believes to have.</param>
    /// <param name="deviceMebibytes">What there really is beneath it; more: it never fails.</param>
    public static async Task<SmallDisk> CreateAsync(int mebibytes, int deviceMebibytes)
    {
        var disk = new SmallDisk();
        try
        {
            Directory.CreateDirectory(disk.Device);
            Directory.CreateDirectory(disk.Mount);
            await RunAsync("mount", "-t", "tmpfs", "-o", $"size={deviceMebibytes.ToString(CultureInfo.InvariantCulture)}m", "tmpfs", disk.Device);
            var image = Path.Combine(disk.Device, "image");
            await using (var file = File.Create(image))
                file.SetLength((long)mebibytes << 20);
            await RunAsync("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image);
            await RunAsync("mount", "-o", "loop", image, disk.Mount);
            return disk;
        }
        catch
        {
            await disk.DisposeAsync();
            throw;
        }
    }

    /// <summary>Takes the room that is left, on the file system itself. Most of it is allocated and not written, which would take minutes on a busy machine.</summary>
    public void Fill()
    {
        var allocated = Math.Max(0, new DriveInfo(Mount).AvailableFreeSpace - FilledByWriting);
        using var file = new FileStream(Path.Combine(Mount, "filler"), new FileStreamOptions { Mode = FileMode.Create, Access = FileAccess.Write, PreallocationSize = allocated });
        // The file is no longer for it.
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
            // Full, as asked for.
        }
    }

    public void Empty() => File.Delete(Path.Combine(Mount, "filler"));

    /// <summary>Takes the room that is left on the device beneath: blocks that were never written find no room from now on.</summary>
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
            // Full, as asked for.
        }
    }

    /// <summary>Lets a process write to it only so many times a second; what it writes past the system's cache.</summary>
    public async Task SlowDownAsync(int process, int writesPerSecond)
    {
        var (_, device, _) = await Tools.RunAsync("findmnt", "--noheadings", "--output", "MAJ:MIN", Mount);
        Directory.CreateDirectory(Throttle);
        await File.WriteAllTextAsync(Path.Combine(Throttle, "blkio.throttle.write_iops_device"), $"{device.Trim()} {writesPerSecond.ToString(CultureInfo.InvariantCulture)}");
        await File.WriteAllTextAsync(Path.Combine(Throttle, "cgroup.procs"), process.ToString(CultureInfo.InvariantCulture));
    }

    /// <summary>Lets a process that was slowed down write as fast as any.</summary>
    public static Task SpeedUpAsync(int process) => File.WriteAllTextAsync(Path.Combine(Throttles, "cgroup.procs"), process.ToString(CultureInfo.InvariantCulture));

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
