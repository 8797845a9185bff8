using System.Globalization;
using System.Runtime.InteropServices;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// What the kernel knows of a directory's disk: bytes that the block device reads and writes, and blocks that files take. The counters of a process do not
/// suffice: they count a page when it is changed in the cache, not when and how often it is written.
/// </summary>
internal static unsafe partial class DeviceCounters
{
    private const int SectorBytes = 512;
    private const int StatusBytes = 256;
    private const int BlocksOffset = 48;
    private const int DeviceMajorOffset = 136;
    private const int DeviceMinorOffset = 140;
    private const int SectorsReadField = 2;
    private const int WritesCompletedField = 4;
    private const int SectorsWrittenField = 6;
    private const int CurrentDirectory = -100;
    private const int DropAdvice = 4;
    private const uint BasicStatus = 0x7FF;

    /// <summary>Bytes written to the device of a directory since the machine started; null if it is not on one block device.</summary>
    public static long? BytesWritten(string directory) => BytesMoved(directory)?.Written;

    /// <summary>
    /// Writes that the device of a directory has completed since the machine started, of all programs; null if it is not on one block device.
    /// </summary>
    public static long? WritesCompleted(string directory) => FieldsOf(directory)?[WritesCompletedField];

    /// <summary>Bytes read from the device of a directory, and written to it, since the machine started; null if it is not on one block device.</summary>
    public static (long Read, long Written)? BytesMoved(string directory) =>
        FieldsOf(directory) is { } fields ? (fields[SectorsReadField] * SectorBytes, fields[SectorsWrittenField] * SectorBytes) : null;

    /// <summary>Bytes that the files of a directory take on the disk; holes do not count, reserved space does.</summary>
    /// <param name="directory">The directory. Those below it count, too.</param>
    /// <param name="except">The name of files that do not count; null: all do.</param>
    public static long BytesAllocated(string directory, string? except = null)
    {
        var status = stackalloc byte[StatusBytes];
        var bytes = 0L;
        foreach (var path in Directory.EnumerateFiles(directory, "*", SearchOption.AllDirectories).Where(path => Path.GetFileName(path) != except))
        {
            Read(path, status);
            bytes += *(long*)(status + BlocksOffset) * SectorBytes;
        }
        return bytes;
    }

    /// <summary>Writes what file systems have in memory to the disk, so that the counters contain it.</summary>
    public static void SyncAll() => Sync();

    /// <summary>Drops the files of a directory from the page cache, as far as they are on the disk.</summary>
    public static void DropFromCache(string directory)
    {
        foreach (var path in Directory.EnumerateFiles(directory, "*", SearchOption.AllDirectories))
        {
            using var file = File.OpenHandle(path);
            if (Advise(file, 0, 0, DropAdvice) is not 0 and var error)
                throw new IOException($"{path} cannot be dropped from the page cache: error {error}.");
        }
    }

    private static long[]? FieldsOf(string directory)
    {
        var status = stackalloc byte[StatusBytes];
        Read(directory, status);
        var path = $"/sys/dev/block/{*(uint*)(status + DeviceMajorOffset)}:{*(uint*)(status + DeviceMinorOffset)}/stat";
        return File.Exists(path)
            ? [.. File.ReadAllText(path).Split((char[]?)null, StringSplitOptions.RemoveEmptyEntries)
                .Select(static field => long.Parse(field, CultureInfo.InvariantCulture))]
            : null;
    }

    private static void Read(string path, byte* status)
    {
        if (StatusOf(CurrentDirectory, path, 0, BasicStatus, status) != 0)
            throw new IOException($"{path} cannot be examined: error {Marshal.GetLastPInvokeError()}.");
    }

    [LibraryImport("libc", EntryPoint = "sync")]
    private static partial void Sync();

    [LibraryImport("libc", EntryPoint = "posix_fadvise")]
    private static partial int Advise(SafeFileHandle file, long offset, long length, int advice);

    [LibraryImport("libc", EntryPoint = "statx", StringMarshalling = StringMarshalling.Utf8, SetLastError = true)]
    private static partial int StatusOf(int directory, string path, int flags, uint mask, byte* status);
}
