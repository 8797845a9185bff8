using System.Diagnostics;
using KvCluster.Storage.Files;

namespace KvCluster.Benchmarks;

/// <summary>
/// The speed of the disk itself, to compare the engine and replication with: direct, synced writes into allocated blocks, one after the other.
/// </summary>
internal static class DeviceWrites
{
    private const int FileBytes = 8 << 20;

    /// <summary>Writes per second of this many bytes, a multiple of 4 KiB, to the disk of a directory.</summary>
    public static double PerSecond(string directory, int bytes, TimeSpan time)
    {
        var path = Path.Combine(directory, $"device-{Environment.ProcessId}");
        var count = 0;
        var started = 0L;
        using (var file = LocalDisk.Instance.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, Direct: true, DataSync: true)))
        {
            using var block = new AlignedBuffer(bytes);
            using var zeros = new AlignedBuffer(FileBytes);
            file.Write(zeros.Span, 0);
            started = Stopwatch.GetTimestamp();
            for (; Stopwatch.GetElapsedTime(started) < time; count++)
                file.Write(block.Span, (long)(count % (FileBytes / bytes)) * bytes);
        }
        var rate = count / Stopwatch.GetElapsedTime(started).TotalSeconds;
        LocalDisk.Instance.Delete(path);
        return rate;
    }
}
