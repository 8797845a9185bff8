using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>What the file system of a directory supports besides reading and writing. Tried on files that are deleted afterwards. For tools.</summary>
/// <param name="Allocates">Space can be allocated without writing it (<c>fallocate</c>).</param>
/// <param name="PunchesHoles">Space within a file can be given back.</param>
/// <param name="Reflinks">A file can share the blocks of another (<c>FICLONE</c>).</param>
internal readonly record struct FileFeatures(bool Allocates, bool PunchesHoles, bool Reflinks)
{
    private const int FileBytes = 64 << 10;

    /// <summary>The type of ext4, and of its predecessors, as linux/magic.h has it.</summary>
    private const long Ext4 = 0xEF53;

    /// <summary>FICLONE.</summary>
    private const nuint ShareBlocks = 0x4004_9409;

    /// <summary>Tries them in a directory. Systems other than Linux have none of them.</summary>
    /// <exception cref="StorageIoException">The directory cannot be written.</exception>
    public static FileFeatures Of(string directory)
    {
        if (!OperatingSystem.IsLinux())
            return default;
        var (source, target) = (Path.Combine(directory, "features-1"), Path.Combine(directory, "features-2"));
        var (first, second) = (Create(source), -1);
        try
        {
            second = Create(target);
            var allocates = LibC.Allocate(first, 0, 0, FileBytes) == 0;
            var punches = allocates && LibC.Allocate(first, LibC.AllocatePunchHole | LibC.AllocateKeepSize, 0, FileBytes / 2) == 0;
            return new FileFeatures(allocates, punches, LibC.Control(second, ShareBlocks, first) == 0);
        }
        finally
        {
            _ = LibC.Close(first);
            if (second >= 0)
                _ = LibC.Close(second);
            LinuxFileSystem.Instance.Delete(source);
            LinuxFileSystem.Instance.Delete(target);
        }
    }

    /// <summary>
    /// Whether a file may be written through the page cache in some blocks and past it in others, and space that it has takes what is written into it, also
    /// when that leaves the page cache. True for ext4 only, which lets no write past the page cache run beside one through it, and with pages of a block:
    /// others copy on write, or were not tried.
    /// </summary>
    /// <param name="directory">A directory of it.</param>
    public static bool MixesWrites(string directory)
    {
        if (!OperatingSystem.IsLinux() || Environment.SystemPageSize != AlignedBuffer.Alignment)
            return false;
        Span<long> statistics = stackalloc long[LibC.StatisticsLongs];
        return LibC.Statistics(directory, ref MemoryMarshal.GetReference(statistics)) == 0 && statistics[0] == Ext4;
    }

    private static int Create(string path) =>
        LinuxFileSystem.OpenOrThrow(path, LibC.OpenReadWrite | LibC.OpenCreate | LibC.OpenExclusive | LibC.OpenCloseOnExec);
}
