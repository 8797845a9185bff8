using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>
/// A store whose data are several times what its process may use of memory, page cache included: loaded, read, scanned and changed in random order, written to
/// checkpoints, opened again, and at the end all of it compared with what was written last. Run by tests/nightly/beyond-memory. An exception means that
/// something was wrong; it ends the process.
/// </summary>
internal sealed class BeyondMemory
{
    /// <summary>
    /// The first argument of the process that makes the group with limited memory: then the directory, the limit in MiB, how many times as much data, and the
    /// seconds of each load.
    /// </summary>
    public const string Command = "beyond-memory";

    /// <summary>The first argument of the process in the group: then the same, and a seed.</summary>
    public const string LimitedCommand = "beyond-memory-limited";

    /// <summary>The exit code where no limit can be set.</summary>
    private const int Skipped = 77;

    private const int Readers = 4;
    private const int Callers = 64;
    private const int LoadBatchBytes = 256 << 10;
    private const int LoadBatchesOpen = 8;
    private const int ReadsPerSnapshot = 64;
    private const int ScanEntries = 5_000;
    private const int DeletesOneOf = 16;

    /// <summary>The part of the limit that the store may use for what is not in its files yet. The rest is for the runtime and the page cache.</summary>
    private const int BudgetPart = 4;

    private readonly string _directory;
    private readonly KvStoreOptions _options;
    private readonly TimeSpan _time;
    private readonly Random _random;

    /// <summary>The newest version of each key; 0 if it was deleted.</summary>
    private readonly List<byte> _versions = [];
    private readonly byte[] _value = new byte[NumberedValues.BytesMax];
    private readonly Lock _valueGate = new();
    private KvStore _store;
    private KvTree _tree = null!;

    private BeyondMemory(string directory, long limitBytes, TimeSpan time, int seed)
    {
        (_directory, _time, _random) = (directory, time, new Random(seed));
        _options = new KvStoreOptions
        {
            MemoryBudgetBytes = Math.Max(KvStoreOptions.MemoryBudgetBytesMin, limitBytes / BudgetPart), CheckpointJournalBytes = limitBytes / BudgetPart
        };
        _store = KvStore.Open(directory, _options);
    }

    /// <summary>Makes the group, and runs the process in it.</summary>
    /// <returns>The exit code.</returns>
    public static async Task<int> RunAsync(string[] arguments)
    {
        var limitBytes = int.Parse(arguments[2], CultureInfo.InvariantCulture) * (1L << 20);
        using var limit = MemoryLimit.TryCreate(limitBytes, out var reason);
        if (limit is null)
        {
            Console.WriteLine($"no memory limit can be set here: {reason}");
            return Skipped;
        }
        var seed = (Seeds.Given ?? Random.Shared.Next()).ToString(CultureInfo.InvariantCulture);
        // Before the runtime starts, so that it knows of the limit, too.
        const string JoinThenRun = """echo $$ >"$0" && exec "$@" """;
        using var process = Process.Start(new ProcessStartInfo(
            "/bin/sh", ["-c", JoinThenRun, limit.Processes, "dotnet", "exec", typeof(Program).Assembly.Location, LimitedCommand, .. arguments[1..], seed]))!;
        await process.WaitForExitAsync();
        if (process.ExitCode != 0 || limit.Kills != 0)
        {
            Console.WriteLine($"KV_SEED={seed}: the process with the store ended with exit code {process.ExitCode}; "
                + $"the system has ended {limit.Kills} processes of its group for want of memory");
            return 1;
        }
        Console.WriteLine($"within {limitBytes >> 20} MiB, and no process was ended for want of memory");
        return 0;
    }

    /// <summary>The process in the group.</summary>
    public static async Task<int> RunLimitedAsync(string[] arguments)
    {
        var limitBytes = int.Parse(arguments[2], CultureInfo.InvariantCulture) * (1L << 20);
        var dataBytes = int.Parse(arguments[3], CultureInfo.InvariantCulture) * limitBytes;
        var run = new BeyondMemory(
            arguments[1], limitBytes, TimeSpan.FromSeconds(int.Parse(arguments[4], CultureInfo.InvariantCulture)),
            int.Parse(arguments[5], CultureInfo.InvariantCulture));
        await run.LoadAsync(dataBytes);
        if (run._store.Statistics.DataBytes < dataBytes)
            throw Wrong($"the data file has {run._store.Statistics.DataBytes} bytes, less than {dataBytes}");
        await run.ReadAsync();
        run.Scan();
        await run.PutAsync();
        await run.ReopenAsync();
        run.CompareAll();
        await run._store.DisposeAsync();
        return 0;
    }

    private static InvalidDataException Wrong(string what) => new($"The store is not as it was written: {what}.");

    // In the order of keys, as a load of a sorted file.
    private async Task LoadAsync(long dataBytes)
    {
        var began = Stopwatch.GetTimestamp();
        _tree = await _store.CreateTreeAsync("numbered");
        var open = new Queue<Task>();
        for (var bytes = 0L; bytes < dataBytes;)
        {
            var batch = new KvBatch();
            for (var batchBytes = 0; batchBytes < LoadBatchBytes && bytes < dataBytes;)
            {
                var added = NumberedValues.KeyBytes + Put(batch, _versions.Count, version: 1);
                _versions.Add(1);
                (batchBytes, bytes) = (batchBytes + added, bytes + added);
            }
            open.Enqueue(_store.WriteAsync(batch).AsTask());
            if (open.Count == LoadBatchesOpen)
                await open.Dequeue();
        }
        await Task.WhenAll(open);
        await _store.CheckpointAsync();
        Tell(string.Create(CultureInfo.InvariantCulture, $"loaded {_versions.Count:N0} keys in {Seconds(began):F1} s; "
            + $"the data file has {_store.Statistics.DataBytes >> 20:N0} MiB"));
    }

    private async Task ReadAsync()
    {
        var began = Stopwatch.GetTimestamp();
        var counts = await Task.WhenAll(
            Enumerable.Range(0, Readers).Select(_ => new Random(_random.Next())).Select(random => Task.Run(() => Read(random, began))));
        Tell(string.Create(CultureInfo.InvariantCulture, $"{counts.Sum() / Seconds(began):N0} random reads/s of {Readers} threads"));
    }

    private long Read(Random random, long began)
    {
        var count = 0L;
        for (; Stopwatch.GetElapsedTime(began) < _time; count += ReadsPerSnapshot)
        {
            using var snapshot = _store.OpenSnapshot();
            for (var index = 0; index < ReadsPerSnapshot; index++)
            {
                var number = random.Next(_versions.Count);
                if (!snapshot.TryGet(_tree, NumberedValues.Key(number), out var value) || !NumberedValues.IsValue(value, number, _versions[number]))
                    throw Wrong($"key {number} is missing, or has another value");
            }
        }
        return count;
    }

    private void Scan()
    {
        var began = Stopwatch.GetTimestamp();
        var count = 0L;
        while (Stopwatch.GetElapsedTime(began) < _time)
        {
            using var snapshot = _store.OpenSnapshot();
            var (first, isReverse) = (_random.Next(Math.Max(1, _versions.Count - ScanEntries)), _random.Next(4) == 0);
            count += Compare(snapshot, first, Math.Min(first + ScanEntries, _versions.Count), isReverse);
        }
        Tell(string.Create(CultureInfo.InvariantCulture, $"{count / Seconds(began):N0} items/s scanned, {ScanEntries} at a time, one of four times backwards"));
    }

    // Callers have keys of their own, so each knows the newest version of what it changes. Checkpoints are written all the time.
    private async Task PutAsync()
    {
        var began = Stopwatch.GetTimestamp();
        var callers = Enumerable.Range(0, Callers).Select(caller => (Caller: caller, Random: new Random(_random.Next())))
            .Select(one => Task.Run(() => PutAsync(one.Caller, one.Random, began))).ToArray();
        var checkpoints = 0;
        for (; Stopwatch.GetElapsedTime(began) < _time; checkpoints++)
            await _store.CheckpointAsync();
        var counted = await Task.WhenAll(callers);
        Tell(string.Create(CultureInfo.InvariantCulture,
            $"{counted.Sum(static one => one.Count) / Seconds(began):N0} random puts/s of {Callers} callers, the longest "
            + $"{counted.Max(static one => one.Longest).TotalSeconds:F2} s, during {checkpoints} checkpoints one after the other"));
    }

    private async Task<(long Count, TimeSpan Longest)> PutAsync(int caller, Random random, long began)
    {
        var (count, longest) = (0L, TimeSpan.Zero);
        for (; Stopwatch.GetElapsedTime(began) < _time; count++)
        {
            var number = (random.Next(_versions.Count / Callers) * Callers) + caller;
            var version = random.Next(DeletesOneOf) == 0 ? (byte)0 : (byte)Math.Max(1, (_versions[number] + 1) & byte.MaxValue);
            var batch = new KvBatch();
            if (version == 0)
                batch.Delete(_tree, NumberedValues.Key(number));
            else
                Put(batch, number, version);
            var asked = Stopwatch.GetTimestamp();
            await _store.WriteAsync(batch);
            _versions[number] = version;
            longest = Stopwatch.GetElapsedTime(asked) is var took && took > longest ? took : longest;
        }
        return (count, longest);
    }

    private async Task ReopenAsync()
    {
        await _store.DisposeAsync();
        var began = Stopwatch.GetTimestamp();
        _store = KvStore.Open(_directory, _options);
        _tree = _store.Tree("numbered");
        Tell(string.Create(CultureInfo.InvariantCulture, $"opened again in {Stopwatch.GetElapsedTime(began).TotalMilliseconds:N0} ms"));
    }

    private void CompareAll()
    {
        var began = Stopwatch.GetTimestamp();
        using var snapshot = _store.OpenSnapshot();
        var count = Compare(snapshot, 0, _versions.Count, isReverse: false);
        Tell(string.Create(CultureInfo.InvariantCulture, $"all {count:N0} values are what was written last, compared in {Seconds(began):F1} s"));
    }

    // Keys that were deleted are not there, and no others are. Returns how many are.
    private long Compare(KvSnapshot snapshot, int first, int end, bool isReverse)
    {
        var count = 0L;
        var step = isReverse ? -1 : 1;
        var next = isReverse ? end - 1 : first;
        foreach (var (key, value) in snapshot.Scan(
            _tree, NumberedValues.Key(first), end == _versions.Count ? default(ReadOnlySpan<byte>) : NumberedValues.Key(end), isReverse))
        {
            next = SkipDeleted(next, end, step);
            if (next < first || next >= end || !key.SequenceEqual(NumberedValues.Key(next)))
                throw Wrong($"a scan from {first} to {end} found another key than {next}");
            if (!NumberedValues.IsValue(value, next, _versions[next]))
                throw Wrong($"key {next} has another value");
            next += step;
            count++;
        }
        return SkipDeleted(next, end, step) == (isReverse ? first - 1 : end) ? count : throw Wrong($"a scan from {first} to {end} ended before key {next}");

        int SkipDeleted(int number, int behind, int by)
        {
            while (number >= first && number < behind && _versions[number] == 0)
                number += by;
            return number;
        }
    }

    // One buffer for all callers: values have up to 8 MiB, and the batch copies them.
    private int Put(KvBatch batch, int number, int version)
    {
        lock (_valueGate)
        {
            var length = NumberedValues.Fill(_value, number, version);
            batch.Put(_tree, NumberedValues.Key(number), _value.AsSpan(0, length));
            return length;
        }
    }

    private static double Seconds(long since) => Stopwatch.GetElapsedTime(since).TotalSeconds;

    private static void Tell(string line) => Console.WriteLine(line);
}
