using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>One run of the suite: the engines that are installed, where their stores are, and the rows so far.</summary>
internal sealed class EngineRun(EnginePlan plan, string directory, Action<string> progress, CancellationToken cancellation)
{
    public const string Suite = "engine";
    private int _stores;
    private int _seeds;

    public EnginePlan Plan => plan;

    public IReadOnlyList<EngineSystem> Systems { get; } =
        [.. EngineSystem.Installed(progress).Where(system => plan.Systems.Count == 0 || plan.Systems.Contains(system.Name))];

    /// <summary>Whether the stores are on one block device, whose writes the kernel counts.</summary>
    public bool CountsDeviceBytes { get; } = CanCount(directory, progress);

    public List<BenchmarkRow> Rows { get; } = [];

    /// <summary>Gets one line at a time about what is being measured.</summary>
    public Action<string> Progress => progress;

    /// <summary>A seed that no caller had before.</summary>
    public int NextSeed() => _seeds++;

    /// <summary>A seed of the round that is being measured, the same for every engine.</summary>
    public int RoundSeed { get; private set; }

    /// <summary>Opens an empty store.</summary>
    public EngineStore NewStore(EngineSystem system) => new(system, Path.Combine(directory, $"{system.Name}-{_stores++}"));

    /// <summary>Opens an empty store of each engine.</summary>
    public EngineStores NewStores() => NewStores(Systems);

    /// <inheritdoc cref="NewStores()"/>
    public EngineStores NewStores(IEnumerable<EngineSystem> systems) => new(systems.Select(NewStore));

    /// <summary>Measures numbers of each engine, the engines taking turns, and adds a row for each number.</summary>
    /// <param name="workload">The name of the rows.</param>
    /// <param name="units">The units of the numbers.</param>
    /// <param name="systems">The engines in turn.</param>
    /// <param name="measure">Measures one engine once and returns one number for each unit.</param>
    /// <param name="rounds">Times to measure; 0: as planned.</param>
    public async Task AlternateAsync(
        string workload, string[] units, IEnumerable<EngineSystem> systems, Func<EngineSystem, Task<double[]>> measure, int rounds = 0)
    {
        var values = systems.SelectMany(_ => units, (system, unit) => (System: system, Unit: unit)).ToDictionary(row => row, _ => new List<double>());
        for (var round = 0; round < (rounds == 0 ? plan.Rounds : rounds); round++)
        {
            RoundSeed = NextSeed();
            foreach (var system in systems)
            {
                cancellation.ThrowIfCancellationRequested();
                foreach (var (unit, value) in units.Zip(await measure(system)))
                {
                    values[(system, unit)].Add(value);
                    progress($"{workload}, {system.Name}: {value:N2} {unit}");
                }
            }
        }
        foreach (var unit in units)
            Rows.AddRange(systems.Select(system => BenchmarkRow.Of(Suite, workload, system.Name, unit, values[(system, unit)])));
    }

    /// <summary>The same with stores that stay open.</summary>
    public Task AlternateAsync(string workload, string[] units, EngineStores stores, Func<EngineStore, Task<double[]>> measure, int rounds = 0) =>
        AlternateAsync(workload, units, stores.All.Select(store => store.System), system => measure(stores.All.First(store => store.System == system)), rounds);

    private static bool CanCount(string directory, Action<string> progress)
    {
        if (DeviceCounters.BytesWritten(directory) is not null)
            return true;
        progress($"SKIPPED {WriteRows.DeviceBytes}: {directory} is not on one block device");
        return false;
    }
}
