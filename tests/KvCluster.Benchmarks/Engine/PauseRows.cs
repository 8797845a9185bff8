using System.Diagnostics;
using KvCluster.Benchmarks.Engine.Peers;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// How long single puts of our engine take while one large checkpoint is written, which began by itself or was asked for, and while keys are loaded, beside
/// direct, synced writes of 4 KiB to another file at the same time, which show what the disk alone adds.
/// </summary>
internal static class PauseRows
{
    public const string Checkpoint = "single put during a checkpoint";
    public const string AskedCheckpoint = "single put during a checkpoint that a caller awaits";
    public const string Load = "single put during a load";
    public const string Longest = "longest ms";
    public const string LongestBeyondDevice = "longest ms less the device's";
    private const string Device = "device";
    private const int ValueBytes = 1_000;
    private const int KeysScale = 5;
    private const int BareFileBytes = 8 << 20;
    private const long ManyBytes = 64L << 30;
    private static readonly TimeSpan CheckpointTimeMax = TimeSpan.FromMinutes(2);
    private static readonly TimeSpan ScratchPoll = TimeSpan.FromMilliseconds(10);

    /// <summary>The rows of the group: at full size about 2 GB of changed pages.</summary>
    public static async Task RunAsync(EngineRun run)
    {
        var keys = run.Plan.Keys / KeysScale;
        var latencies = new Latencies(run);
        await BeganAsync(run, keys, latencies);
        // Only the checkpoint that is asked for.
        var options = new StoreOptions { CheckpointScratchBytes = ManyBytes, CheckpointJournalBytes = ManyBytes, CheckpointQuiescentJournalBytes = ManyBytes };
        using var store = run.NewStore(EngineSystem.OursWith(options));
        for (var round = 0; round < run.Plan.Rounds; round++)
        {
            await LoadRows.LoadAsync(store.Engine, keys, ValueBytes);
            await latencies.MeasureAsync(AskedCheckpoint, store, keys, store.Engine.SettleAsync());
        }
        for (var round = 0; round < run.Plan.Rounds; round++)
        {
            using var loaded = run.NewStore(EngineSystem.Ours);
            var started = Stopwatch.GetTimestamp();
            await latencies.MeasureAsync(Load, loaded, keys, LoadRows.LoadAsync(loaded.Engine, run.Plan.Keys));
            latencies.Add(Load, EngineSystem.KvCluster, LoadRows.ItemsPerSecond, run.Plan.Keys / Stopwatch.GetElapsedTime(started).TotalSeconds);
        }
        latencies.Report();
    }

    // The checkpoint begins in the last part of the load.
    private static async Task BeganAsync(EngineRun run, long keys, Latencies latencies)
    {
        var options = new StoreOptions { CheckpointScratchBytes = keys * ValueBytes, CheckpointJournalBytes = ManyBytes };
        for (var round = 0; round < run.Plan.Rounds; round++)
        {
            using var store = run.NewStore(EngineSystem.OursWith(options));
            await LoadRows.LoadAsync(store.Engine, keys, ValueBytes);
            await latencies.MeasureAsync(
                Checkpoint, store, keys, WrittenAsync(((KvClusterEngine)store.Engine).Store.Store.Statistics, options.CheckpointScratchBytes / 2));
        }
    }

    // A checkpoint gives back the memory of the pages that it wrote.
    private static async Task WrittenAsync(StoreStatistics statistics, long scratchBytesMax)
    {
        var started = Stopwatch.GetTimestamp();
        while (statistics.ScratchBytes > scratchBytesMax)
        {
            await Task.Delay(ScratchPoll);
            if (Stopwatch.GetElapsedTime(started) > CheckpointTimeMax)
                throw new InvalidOperationException($"No checkpoint ended within {CheckpointTimeMax.TotalSeconds} seconds.");
        }
    }

    private sealed class Latencies(EngineRun run)
    {
        private readonly Dictionary<(string Workload, string System, string Unit), List<double>> _values = [];

        public async Task MeasureAsync(string workload, EngineStore store, long keys, Task until)
        {
            var puts = PutLatency.MeasureAsync(store.Engine, new EngineData(run.NextSeed()), keys, () => until.IsCompleted);
            var bare = Task.Factory.StartNew(
                () => Write(store.Directory + ".bare", until), CancellationToken.None, TaskCreationOptions.LongRunning, TaskScheduler.Default);
            await until;
            var (ours, device) = (await puts, await bare);
            if (ours.Count == 0 || device.Count == 0)
            {
                // A small store's checkpoint may end before the first write. A workload without a round has no rows, and its targets are reported as skipped.
                run.Progress($"{workload}: it ended before anything was written beside it, so this round measured nothing");
                return;
            }
            Add(workload, EngineSystem.KvCluster, LongestBeyondDevice, Add(workload, EngineSystem.KvCluster, ours) - Add(workload, Device, device));
        }

        public void Report() =>
            run.Rows.AddRange(_values.Select(entry => BenchmarkRow.Of(EngineRun.Suite, entry.Key.Workload, entry.Key.System, entry.Key.Unit, entry.Value)));

        // Adds the numbers of one round, whose times are sorted, and returns the longest time in ms.
        private double Add(string workload, string system, List<long> latencies)
        {
            run.Progress($"{workload}, {system}: {latencies.Count} writes");
            foreach (var (unit, part) in ((string, double)[])[(PutLatency.P50, 0.5),
                (PutLatency.P99, 0.99), (PutLatency.P999, 0.999), (PutLatency.P9999, 0.9999), (Longest, 1)])
                Add(workload, system, unit, PutLatency.MillisecondsOf(latencies, part));
            return PutLatency.MillisecondsOf(latencies, 1);
        }

        public void Add(string workload, string system, string unit, double value)
        {
            if (!_values.TryGetValue((workload, system, unit), out var list))
                _values.Add((workload, system, unit), list = []);
            list.Add(value);
            run.Progress($"{workload}, {system}: {value:N2} {unit}");
        }

        private static List<long> Write(string path, Task until)
        {
            var latencies = new List<long>(1 << 20);
            using (var file = LocalDisk.Instance.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, Direct: true, DataSync: true)))
            {
                using var block = new AlignedBuffer(AlignedBuffer.Alignment);
                using var zeros = new AlignedBuffer(BareFileBytes);
                file.Write(zeros.Span, 0);
                for (var offset = 0; !until.IsCompleted; offset = (offset + AlignedBuffer.Alignment) % BareFileBytes)
                {
                    var started = Stopwatch.GetTimestamp();
                    file.Write(block.Span, offset);
                    latencies.Add(Stopwatch.GetTimestamp() - started);
                }
            }
            LocalDisk.Instance.Delete(path);
            latencies.Sort();
            return latencies;
        }
    }
}
