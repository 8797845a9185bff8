using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Inspection;

/// <summary>Median times of durable writes of 4 KiB, by what the space was before.</summary>
/// <param name="Allocated">Allocated and never written.</param>
/// <param name="Zeroed">Filled with zeros.</param>
/// <param name="Recycled">Written before in the same way.</param>
internal readonly record struct WriteTimes(TimeSpan Allocated, TimeSpan Zeroed, TimeSpan Recycled);

/// <summary>What the device of a directory does.</summary>
/// <param name="IsDirect">Whether the file system has direct I/O.</param>
/// <param name="Direct">Writes that bypass the page cache and are durable when they return; null without direct I/O.</param>
/// <param name="Buffered">Writes through the page cache, each followed by a sync.</param>
/// <param name="OnePerSecond">Direct, durable writes per second with one in flight; buffered ones without direct I/O.</param>
/// <param name="TwoPerSecond">The same with two in flight; null without direct I/O.</param>
/// <param name="FourPerSecond">The same with four.</param>
/// <param name="LargeWrite">Median time of a durable write of 1 MiB.</param>
/// <param name="DirectorySync">Median time to create a file and make its name durable.</param>
/// <param name="Features">What the file system supports besides.</param>
internal sealed record DeviceReport(
    bool IsDirect, WriteTimes? Direct, WriteTimes Buffered, double OnePerSecond, double? TwoPerSecond, double? FourPerSecond,
    TimeSpan LargeWrite, TimeSpan DirectorySync, FileFeatures Features);

/// <summary>How journals should use a disk.</summary>
/// <param name="Filling">Whether to fill new segments with zeros.</param>
/// <param name="Compression">Whether to compress large records.</param>
/// <param name="JournalWrites">How many writes to have in flight.</param>
internal readonly record struct JournalUse(bool Filling, bool Compression, int JournalWrites)
{
    /// <summary>What suits most disks.</summary>
    public static JournalUse OfMostDisks { get; } = new(Filling: true, Compression: false, DeviceProbe.JournalWrites(TimeSpan.Zero));
}

/// <summary>
/// Measures the device of a directory with files of its own, which it deletes. Takes about a second on a fast device, and some on a slow one. Nothing else
/// should use the device meanwhile. One thread, and up to four for the writes in flight.
/// </summary>
internal sealed class DeviceProbe
{
    /// <summary>The directory of its files, below the one that it measures.</summary>
    public const string DirectoryName = ".probe";

    private const int WriteBytes = RecordEnvelope.BlockBytes;
    private const int Writes = 64;
    private const int WritesInFlight = 256;

    private const int QuickWrites = 24;

    /// <summary>Enough for a median, also of a slow device.</summary>
    private const int WritesMin = 8;

    /// <summary>ext4 on a virtual disk and on a loop device: 0.64 and 0.2 to 0.35. btrfs: 1.1. A file system in memory: 1.</summary>
    private const double FillingPaysBelow = 0.85;

    private const int LargeWriteBytes = 1 << 20;
    private const int LargeWrites = 9;
    private const int LargeWritesMin = 3;

    /// <summary>For each of the two measurements of a start, beyond the fewest writes.</summary>
    private static readonly TimeSpan QuickTimeMax = TimeSpan.FromMilliseconds(150);

    /// <summary>
    /// A virtual disk: 0.4 ms. A writer fills 1 MiB with small puts in some 5 ms, so that a faster disk waits for it anyhow, and a slower one is waited for.
    /// </summary>
    private static readonly TimeSpan CompressionPaysAbove = TimeSpan.FromMilliseconds(4);

    /// <summary>
    /// A virtual disk takes 0.1 ms. Where a write took 2 ms more, four in flight served 64 and 512 callers better by 21 and 37 % than two, and 8 callers worse
    /// by 7 %; on the disk itself, 64 callers worse by 10 % (DECISIONS.md, "Two journal writes in flight, or four").
    /// </summary>
    private static readonly TimeSpan FourWritesPayAbove = TimeSpan.FromMilliseconds(1.5);

    private readonly IFileSystem _files;
    private readonly TimeProvider _time;
    private readonly string _directory;

    private DeviceProbe(IFileSystem files, TimeProvider time, string directory) => (_files, _time, _directory) = (files, time, directory);

    /// <summary>Measures the device on which a directory is.</summary>
    /// <exception cref="DirectoryNotFoundException">The directory does not exist.</exception>
    /// <exception cref="IOException">The path is that of a file.</exception>
    /// <exception cref="StorageIoException">The directory cannot be written, or the disk is full or failed.</exception>
    public static DeviceReport Run(IFileSystem files, TimeProvider time, string directory) => Run(files, time, directory, static probe => probe.Measure());

    private static T Run<T>(IFileSystem files, TimeProvider time, string directory, Func<DeviceProbe, T> measure)
    {
        if (!files.DirectoryExists(directory))
            throw files.FileExists(directory) ? new IOException($"'{directory}' is a file, not a directory.")
                : new DirectoryNotFoundException($"The directory '{directory}' does not exist.");
        var own = Path.Combine(directory, DirectoryName);
        files.DeleteDirectory(own);
        files.CreateDirectory(own);
        try
        {
            return measure(new DeviceProbe(files, time, own));
        }
        finally
        {
            files.DeleteDirectory(own);
        }
    }

    /// <summary>
    /// Measures whether it pays to fill new segments of journals with zeros, to compress large records, and to have more than two writes in flight. Takes
    /// some milliseconds on a fast device, and about half a second at most on a slow one.
    /// </summary>
    /// <exception cref="StorageIoException">The directory cannot be written, or the disk is full or failed.</exception>
    public static JournalUse MeasureWhatPays(IFileSystem files, TimeProvider time, string directory) =>
        Run(files, time, directory, static probe =>
        {
            var times = probe.QuickTimes();
            return new JournalUse(FillingPays(times), probe.CompressionPays(), JournalWrites(times.Zeroed));
        });

    /// <summary>The same, or what suits most disks where this one is full or fails, which the store meets itself.</summary>
    public static JournalUse MeasureOrAssume(IFileSystem files, TimeProvider time, string directory)
    {
        try
        {
            return MeasureWhatPays(files, time, directory);
        }
        catch (StorageIoException)
        {
            return JournalUse.OfMostDisks;
        }
    }

    /// <summary>
    /// Whether a write into zero-filled space is so much faster than one into space that was only allocated that filling is worthwhile. False where the file
    /// system copies on write, so that every write goes to new space.
    /// </summary>
    public static bool FillingPays(in WriteTimes times) => times.Zeroed < FillingPaysBelow * times.Allocated;

    /// <summary>How many writes a journal should have in flight.</summary>
    /// <param name="write">Median time of a durable write of 4 KiB into zero-filled space.</param>
    public static int JournalWrites(TimeSpan write) => write > FourWritesPayAbove ? 4 : 2;

    /// <summary>Whether a durable write of 1 MiB takes so long that compressing large records is worthwhile.</summary>
    public static bool CompressionPays(TimeSpan largeWrite) => largeWrite > CompressionPaysAbove;

    private WriteTimes QuickTimes()
    {
        using var allocated = Prepare("allocated", isDirect: true, QuickWrites, isZeroed: false);
        using var zeroed = Prepare("zeroed", isDirect: true, QuickWrites, isZeroed: true);
        using var block = Filled(WriteBytes);
        var times = (Allocated: new List<TimeSpan>(), Zeroed: new List<TimeSpan>());
        var began = _time.GetTimestamp();
        // The two files are written in turn, so that both meet the same load of other processes.
        for (var write = 0; write < QuickWrites && (write < WritesMin || _time.GetElapsedTime(began) < QuickTimeMax); write++)
        {
            times.Allocated.Add(Timed(() => WriteDurable(allocated, block, write)));
            times.Zeroed.Add(Timed(() => WriteDurable(zeroed, block, write)));
        }
        return new WriteTimes(Median([.. times.Allocated]), Median([.. times.Zeroed]), default);
    }

    private bool CompressionPays()
    {
        try
        {
            // Two writes that are clearly fast decide the median of three. So a start writes little where the disk is fast, and nodes start by the hundred in
            // tests.
            return CompressionPays(LargeWrite(static times => times.Count == 2 && times.TrueForAll(static took => took < CompressionPaysAbove / 2)));
        }
        catch (StorageIoException)
        {
            // A nearly full disk has no space for it. What was measured before still counts.
            return false;
        }
    }

    /// <summary>Measures writes of 1 MiB.</summary>
    /// <param name="isClear">Whether the times so far suffice.</param>
    private TimeSpan LargeWrite(Predicate<List<TimeSpan>> isClear)
    {
        using var file = Prepare("large", isDirect: true, LargeWriteBytes / WriteBytes, isZeroed: true);
        using var bytes = Filled(LargeWriteBytes);
        var times = new List<TimeSpan>();
        var began = _time.GetTimestamp();
        while (times.Count < LargeWrites && !isClear(times) && (times.Count < LargeWritesMin || _time.GetElapsedTime(began) < QuickTimeMax))
            times.Add(Timed(() => WriteDurable(file, bytes, 0)));
        return Median([.. times]);
    }

    private DeviceReport Measure()
    {
        var direct = Times(isDirect: true, out var isDirect);
        var buffered = Times(isDirect: false, out _);
        using var file = Prepare("in-flight", isDirect, WritesInFlight, isZeroed: true);
        return new DeviceReport(
            isDirect, isDirect ? direct : null, buffered, PerSecond(file, lanes: 1), isDirect ? PerSecond(file, lanes: 2) : null,
            isDirect ? PerSecond(file, lanes: 4) : null, LargeWrite(static _ => false), DirectorySync(), FileFeatures.Of(_directory));
    }

    private WriteTimes Times(bool isDirect, out bool wasDirect)
    {
        TimeSpan allocated, zeroed, recycled;
        using (var file = Prepare($"allocated-{isDirect}", isDirect, Writes, isZeroed: false))
            (allocated, wasDirect) = (MedianOf(file), file.IsDirect);
        using (var file = Prepare($"zeroed-{isDirect}", isDirect, Writes, isZeroed: true))
            (zeroed, recycled) = (MedianOf(file), MedianOf(file));
        return new WriteTimes(allocated, zeroed, recycled);
    }

    private IStorageFile Prepare(string name, bool isDirect, int writes, bool isZeroed)
    {
        var file = _files.Open(Path.Combine(_directory, name), new StorageFileOptions(StorageFileMode.CreateNew, Direct: isDirect, DataSync: isDirect));
        file.Resize(writes * WriteBytes);
        if (isZeroed)
        {
            using var zeros = new AlignedBuffer(writes * WriteBytes);
            file.Write(zeros.Span, 0);
        }
        file.Sync();
        return file;
    }

    private TimeSpan MedianOf(IStorageFile file)
    {
        using var block = Filled(WriteBytes);
        var times = new TimeSpan[Writes];
        for (var write = 0; write < Writes; write++)
            times[write] = Timed(() => WriteDurable(file, block, write));
        return Median(times);
    }

    private double PerSecond(IStorageFile file, int lanes)
    {
        var threads = Enumerable.Range(0, lanes).Select(lane => new WorkThread($"kv-probe-{lane}", _time)).ToArray();
        using var done = new CountdownEvent(lanes);
        Exception? failure = null;
        var took = Timed(() =>
        {
            for (var lane = 0; lane < lanes; lane++)
            {
                var first = lane;
                threads[lane].Post(new WorkAction(() =>
                {
                    try
                    {
                        using var block = Filled(WriteBytes);
                        for (var write = first; write < WritesInFlight; write += lanes)
                            WriteDurable(file, block, write);
                    }
                    catch (Exception caught)
                    {
                        failure = caught;
                    }
                    done.Signal();
                }));
            }
            done.Wait();
        });
        foreach (var thread in threads)
            thread.Dispose();
        return failure is null ? WritesInFlight / took.TotalSeconds : throw failure;
    }

    private TimeSpan DirectorySync()
    {
        var times = new TimeSpan[Writes / 4];
        for (var number = 0; number < times.Length; number++)
        {
            times[number] = Timed(() =>
            {
                _files.Open(Path.Combine(_directory, $"name-{number}"), new StorageFileOptions(StorageFileMode.CreateNew)).Dispose();
                _files.SyncDirectory(_directory);
            });
        }
        return Median(times);
    }

    /// <summary>A buffer without zeros, which a device may store without writing them.</summary>
    private static AlignedBuffer Filled(int length)
    {
        var filled = new AlignedBuffer(length);
        for (var at = 0; at < length; at++)
            filled.Span[at] = (byte)((at * 31) + (at >> 8) + 1);
        return filled;
    }

    private static void WriteDurable(IStorageFile file, AlignedBuffer block, int index)
    {
        file.Write(block.Span, index * WriteBytes);
        if (!file.IsDirect)
            file.Sync();
    }

    private TimeSpan Timed(Action action)
    {
        var began = _time.GetTimestamp();
        action();
        return _time.GetElapsedTime(began);
    }

    private static TimeSpan Median(TimeSpan[] times)
    {
        Array.Sort(times);
        return times[times.Length / 2];
    }
}
