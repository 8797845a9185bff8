using System.Diagnostics;
using System.Globalization;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Processes;
using KvCluster.Storage.Context;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Measures one workload of one engine in a process of its own, this program again, in a group with limited memory, page cache included, after the store's
/// files were dropped from the page cache.
/// </summary>
internal static class LimitedProcess
{
    /// <summary>The first argument of the process.</summary>
    public const string Command = "engine-limited";

    /// <summary>The part of the memory that RocksDB's block cache has.</summary>
    public const int CachePart = 4;

    private const long WarmKeys = 20_000;
    private const int WarmParts = 8;
    private const int WarmPart = 5;

    /// <summary>Starts the process, and waits for it.</summary>
    /// <param name="run">With the time of a measurement and a seed.</param>
    /// <param name="store">Closed; the process opens it.</param>
    /// <param name="limit">The group of the process.</param>
    /// <param name="memory">What the group may use, in bytes.</param>
    /// <param name="keys">Keys of the store.</param>
    /// <param name="workload">What to measure.</param>
    /// <returns>A number for each of the workload's units.</returns>
    /// <exception cref="InvalidOperationException">The process failed.</exception>
    public static async Task<double[]> MeasureAsync(EngineRun run, EngineStore store, MemoryLimit limit, long memory, long keys, LimitedWorkload workload)
    {
        DeviceCounters.SyncAll();
        DeviceCounters.DropFromCache(store.Directory);
        string[] arguments =
        [
            Command, limit.Processes, store.System.Name, store.Directory, keys.ToString(CultureInfo.InvariantCulture), workload.Name,
            memory.ToString(CultureInfo.InvariantCulture),
            run.Plan.Time.TotalSeconds.ToString(CultureInfo.InvariantCulture), run.RoundSeed.ToString(CultureInfo.InvariantCulture),
        ];
        var (exitCode, output, error) = await OwnProgram.RunAsync(arguments);
        return exitCode == 0
            ? [.. output.Split((char[]?)null, StringSplitOptions.RemoveEmptyEntries).Select(number => double.Parse(number, CultureInfo.InvariantCulture))]
            : throw new InvalidOperationException($"The measuring process of {store.System.Name} ended with exit code {exitCode}; the system has ended "
                + $"{limit.Kills} processes of its group for want of memory: {error}");
    }

    /// <summary>The process: prints the numbers. The arguments are those of <see cref="MeasureAsync"/>.</summary>
    public static async Task<int> RunAsync(string[] arguments)
    {
        File.WriteAllText(arguments[1], Environment.ProcessId.ToString(CultureInfo.InvariantCulture));
        var (system, directory) = (arguments[2], arguments[3]);
        var workload = ColdRows.Workloads.Concat(BeyondMemoryRows.Workloads).First(one => one.Name == arguments[5]);
        var memory = long.Parse(arguments[6], CultureInfo.InvariantCulture);
        var work = new LimitedWork(
            directory, long.Parse(arguments[4], CultureInfo.InvariantCulture), TimeSpan.FromSeconds(double.Parse(arguments[7], CultureInfo.InvariantCulture)),
            int.Parse(arguments[8], CultureInfo.InvariantCulture));
        if (workload.Warms)
            await WarmAsync(work with { Directory = directory + ".warm" });
        using (var engine = Open(directory))
            Print(await workload.MeasureAsync(engine, work));
        return 0;

        // A scan takes a second, and would otherwise measure code that is not compiled for good yet.
        async Task WarmAsync(LimitedWork warm)
        {
            using (var engine = Open(warm.Directory))
            {
                await LoadRows.LoadAsync(engine, WarmKeys);
                var time = work.Time / WarmPart;
                for (var started = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(started) < time;)
                    await workload.MeasureAsync(engine, warm with { Keys = WarmKeys, Time = time / WarmParts });
            }
            Directory.Delete(warm.Directory, recursive: true);
        }

        IEngine Open(string path) => system switch
        {
            EngineSystem.Lmdb => new LmdbEngine(path, workload.ReadsAhead),
            EngineSystem.RocksDb => new RocksDbEngine(path, memory / CachePart, memory / workload.BudgetPart),
            _ => new KvClusterEngine(path, new StoreOptions(), memory / workload.BudgetPart),
        };
    }

    private static void Print(double[] numbers) =>
        Console.WriteLine(string.Join(' ', numbers.Select(number => number.ToString(CultureInfo.InvariantCulture))));
}

/// <summary>What a <see cref="LimitedProcess"/> can measure.</summary>
/// <param name="Name">The name of its rows.</param>
/// <param name="Units">The units of its numbers.</param>
/// <param name="MeasureAsync">Measures an open engine and returns a number for each unit.</param>
internal sealed record LimitedWorkload(string Name, string[] Units, Func<IEngine, LimitedWork, Task<double[]>> MeasureAsync)
{
    /// <summary>The part of the memory that ours has as its budget, and of which RocksDB's write buffers are a part (<see cref="RocksDbEngine"/>).</summary>
    public int BudgetPart { get; init; } = 4;

    /// <summary>Whether LMDB lets the kernel read ahead.</summary>
    public bool ReadsAhead { get; init; }

    /// <summary>Whether to measure a small store first, until the code is compiled for good.</summary>
    public bool Warms { get; init; }
}

/// <summary>What one measurement needs to know.</summary>
/// <param name="Directory">That of the store.</param>
/// <param name="Keys">Keys of the store.</param>
/// <param name="Time">How long to measure.</param>
/// <param name="Seed">Of the keys chosen.</param>
internal sealed record LimitedWork(string Directory, long Keys, TimeSpan Time, int Seed)
{
    /// <summary>The data of a caller.</summary>
    public EngineData DataOf(int caller) => new((Seed * WriteRows.ManyCallers) + caller);
}
