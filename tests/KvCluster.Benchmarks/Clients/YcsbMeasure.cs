using System.Diagnostics;
using Grpc.Core;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Cli.Bench;
using KvCluster.Client;
using KvCluster.Node.Configuration;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// The core workloads of YCSB, as `kv bench` has them, over many records of 100 bytes: in three nodes through the library, in one Redis server that syncs
/// before each answer, and in an etcd of three, each loaded before. Windows of the systems alternate, so that a machine that slows down slows all of them.
/// </summary>
/// <remarks>
/// Workload D reads the newest records most often, also those whose insert is not answered yet, so that some are not found; in every other workload each must
/// be.
/// </remarks>
internal static class YcsbMeasure
{
    public const string OperationsPerSecond = "op/s";

    private const int Runs = 3;
    private const int AttemptsMax = 3;
    private const int ScanRecordsMax = 100;

    private static IEnumerable<Workload> CoreWorkloads => Workload.All.Where(static one => one.Name.Length == 1);

    /// <summary>The names of the workloads in the table.</summary>
    public static IEnumerable<string> Workloads => CoreWorkloads.Select(NameOf);

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(ClientsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        var systems = new List<Loaded>();
        try
        {
            var budgetMebibytes = NodeOptions.MemoryBudgetOfEach(KvServers.Nodes);
            progress($"YCSB: {plan.Records:N0} records of {ClientsSuite.ValueBytes} bytes, {KvServers.Nodes} nodes with a memory budget of "
                + $"{budgetMebibytes:N0} MiB each");
            var rows = new List<BenchmarkRow>
            {
                BenchmarkRow.Of(ClientsSuite.Name, "YCSB: memory budget of each node", ClientsSuite.Ours, "MiB", [budgetMebibytes]),
            };
            await StartAsync(systems, plan.Records, progress, cancellation);
            var values = ManyKeys.Values(ClientsSuite.ValueBytes);
            foreach (var system in systems)
                rows.AddRange(await LoadAsync(system.Store, values, progress, cancellation));
            foreach (var workload in CoreWorkloads)
                rows.AddRange(await MeasureAsync(workload, systems, values, plan.Time / Runs, progress, cancellation));
            return rows;
        }
        finally
        {
            foreach (var system in systems)
                await system.Store.DisposeAsync();
        }
    }

    private static async Task StartAsync(List<Loaded> systems, int records, Action<string> progress, CancellationToken cancellation)
    {
        systems.Add(new Loaded(new KvClusterStore(await KvServers.StartAsync(cancellation), records)));
        if (RedisServer.IsInstalled)
            systems.Add(new Loaded(await RedisStore.StartAsync(records, cancellation)));
        else
            progress("SKIPPED YCSB in Redis: redis-server is not on PATH");
        if (EtcdProcesses.AreAvailable)
            systems.Add(new Loaded(await EtcdStore.StartAsync(records)));
        else
            progress("SKIPPED YCSB in etcd: not on PATH and not beside the repository");
    }

    private static async Task<BenchmarkRow[]> LoadAsync(IYcsbStore store, byte[][] values, Action<string> progress, CancellationToken cancellation)
    {
        var started = Stopwatch.GetTimestamp();
        await store.LoadAsync(values, cancellation);
        var rate = store.Records / Stopwatch.GetElapsedTime(started).TotalSeconds;
        progress($"YCSB: {store.Records:N0} records loaded into {store.Name}, {rate:F0}/s");
        return
        [
            BenchmarkRow.Of(ClientsSuite.Name, "YCSB: records", store.Name, "records", [store.Records]),
            BenchmarkRow.Of(ClientsSuite.Name, "YCSB: load in key order", store.Name, "records/s", [rate]),
        ];
    }

    private static async Task<List<BenchmarkRow>> MeasureAsync(
        Workload workload, List<Loaded> systems, byte[][] values, TimeSpan window, Action<string> progress, CancellationToken cancellation)
    {
        var outcomes = systems.ConvertAll(static _ => new List<ClosedLoop.Outcome>());
        foreach (var system in systems)
        {
            system.Begin(workload);
            // Connections, compiled code, and what is kept in memory of other keys.
            await TryRunAsync(workload, system, values, window / 2, progress, cancellation);
        }
        for (var run = 0; run < Runs; run++)
        {
            foreach (var (index, system) in systems.Index())
            {
                if (await TryRunAsync(workload, system, values, window, progress, cancellation) is not { } outcome)
                    continue;
                outcomes[index].Add(outcome);
                progress($"{NameOf(workload)}, run {run + 1} of {Runs}, {system.Store.Name}: {outcome.OperationsPerSecond:F0}/s, p50 "
                    + $"{outcome.P50Milliseconds:F2} ms, p99 {outcome.P99Milliseconds:F2} ms, {outcome.CpuMicroseconds:F1} us CPU an operation");
            }
        }
        var rows = new List<BenchmarkRow>();
        foreach (var (index, system) in systems.Index())
        {
            system.End();
            if (outcomes[index].Count > 0)
                rows.AddRange(ClosedLoop.RowsOf(ClientsSuite.Name, NameOf(workload), system.Store.Name, outcomes[index]));
        }
        return rows;
    }

    // A system that loses its leader, or answers too late, on an overloaded machine is asked again. Then the others are measured without it.
    private static async Task<ClosedLoop.Outcome?> TryRunAsync(
        Workload workload, Loaded system, byte[][] values, TimeSpan window, Action<string> progress, CancellationToken cancellation)
    {
        for (var attempt = 1; attempt <= AttemptsMax; attempt++)
        {
            try
            {
                return await ClosedLoop.RunAsync(
                    ClientsSuite.Callers, window, system.Store.Servers,
                    (caller, number) => OperateAsync(system.Store, workload, system.Keys, caller, values[number & (values.Length - 1)]), cancellation);
            }
            catch (Exception failure) when (failure is RpcException or KvException)
            {
                progress($"{NameOf(workload)}, {system.Store.Name}, attempt {attempt} of {AttemptsMax}: {failure.Message}");
            }
        }
        progress($"SKIPPED {NameOf(workload)} in {system.Store.Name}: calls fail");
        return null;
    }

    private static async Task OperateAsync(IYcsbStore store, Workload workload, BenchKeys keys, int caller, byte[] value)
    {
        switch (workload.OperationOf(Random.Shared.Next(100)))
        {
            case BenchOperation.Put:
                await store.PutAsync(caller, keys.Choose(), value);
                return;
            case BenchOperation.Insert:
                await store.InsertAsync(caller, keys.New(), value);
                return;
            case BenchOperation.Scan:
                Found(await store.ScanAsync(caller, keys.Choose(), Random.Shared.Next(1, ScanRecordsMax + 1)) > 0);
                return;
            case BenchOperation.Modify:
                var key = keys.Choose();
                Found(await store.GetAsync(caller, key));
                await store.PutAsync(caller, key, value);
                return;
            default:
                Found(await store.GetAsync(caller, keys.Choose()) || workload.Keys == KeyDistribution.Latest);
                return;
        }
    }

    private static void Found(bool found)
    {
        if (!found)
            throw new InvalidOperationException("A record that was loaded is not found: the numbers would be of something else.");
    }

    private static string NameOf(Workload workload) => $"YCSB {workload.Name.ToUpperInvariant()}, {ClientsSuite.Callers} callers";

    /// <summary>A system with its records, to which workloads add.</summary>
    private sealed class Loaded(IYcsbStore store)
    {
        private int _count = store.Records;

        public IYcsbStore Store { get; } = store;

        /// <summary>Of the workload that runs.</summary>
        public BenchKeys Keys { get; private set; } = new(KeyDistribution.Uniform, store.Records);

        public void Begin(Workload workload) => Keys = new BenchKeys(workload.Keys, _count);

        public void End() => _count = Keys.Count;
    }
}
