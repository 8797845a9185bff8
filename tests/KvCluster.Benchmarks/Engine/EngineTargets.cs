using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>What the engine has to reach, and whether the rows of a run do. Pure.</summary>
internal static class EngineTargets
{
    private static readonly Target[] All =
    [
        new(WriteRows.PutsOf(1), WriteRows.PutsPerSecond, 1.3),
        new(WriteRows.PutsOf(8), WriteRows.PutsPerSecond, 2, EngineSystem.RocksDb),
        new(WriteRows.PutsOf(64), WriteRows.PutsPerSecond, 2.7, EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfNew, WriteRows.PutsPerSecond, 2.5, EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfLarge, WriteRows.PutsPerSecond, 1.5, EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfLarge, WriteRows.PutsPerSecond, 10, EngineSystem.Lmdb),
        Bound(WriteRows.PutsOf(1), WriteRows.DeviceBytes, 4_600),
        Bound(WriteRows.PutsOf(64), WriteRows.DeviceBytes, 350),
        Bound(WriteRows.TransactionsOfLarge, WriteRows.DeviceBytes, 1_200),
        new(ReadRows.ReadsOf(1, alone: true), ReadRows.ReadsPerSecond, 1.5, EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(1, alone: false), ReadRows.ReadsPerSecond, 1.5, EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(2, alone: true), ReadRows.ReadsPerSecond, 1.5, EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(2, alone: false), ReadRows.ReadsPerSecond, 1.5, EngineSystem.Lmdb),
        new(ReadRows.Scan, ReadRows.ItemsPerSecond, 1.2, EngineSystem.Lmdb),
        new(LoadRows.SortedLoad, LoadRows.ItemsPerSecond, 1, EngineSystem.Lmdb),
        Bound(LoadRows.SortedLoad, LoadRows.FilesToRaw, 1.08),
        new(ColdRows.Reads, ReadRows.ReadsPerSecond, 1.5, EngineSystem.Lmdb),
        new(ColdRows.Reads, ReadRows.ReadsPerSecond, 1, EngineSystem.RocksDb),
        new(ColdRows.Scan, ReadRows.ItemsPerSecond, 1, EngineSystem.Lmdb),
        new(ColdRows.Scan, ReadRows.ItemsPerSecond, 1, EngineSystem.RocksDb),
        Bound(PauseRows.Checkpoint, PauseRows.Longest, 20),
        Bound(PauseRows.Load, PauseRows.Longest, 20),
        new(LoadRows.Files, LoadRows.FilesToRaw, 0.8, EngineSystem.Lmdb, IsMaximum: true),
        Bound(OpenRows.Clean, OpenRows.Milliseconds, 100),
        Bound(OpenRows.Killed, OpenRows.Milliseconds, 2_000),
        Bound(AllocationRows.Read, AllocationRows.Bytes, 0),
        Bound(AllocationRows.Put, AllocationRows.Bytes, 100),
        Bound(CheckpointRows.Overwritten, CheckpointRows.FileToLive, 1.3),
        Bound(LoadRows.RandomPuts, LoadRows.FilesToRaw, 1.35),
    ];

    /// <summary>One line for each target that the rows decide: "reached: ..." or "MISSED: ...".</summary>
    public static IEnumerable<string> Verdicts(IReadOnlyCollection<BenchmarkRow> rows)
    {
        foreach (var target in All)
        {
            var measured = rows.Where(row => row.Suite == EngineRun.Suite && row.Workload == target.Workload && row.Unit == target.Unit).ToArray();
            if (measured.FirstOrDefault(row => row.System == EngineSystem.KvCluster) is not { } ours)
                continue;
            var what = $"{target.Workload}, {target.Unit}";
            var bound = $"{(target.IsMaximum ? "at most" : "at least")} {target.Factor:N2}";
            if (target is { IsMaximum: true, Peer: null })
            {
                yield return $"{Verdict(ours.Median <= target.Factor)}: {what}: {ours.Median:N2}, {bound}";
                continue;
            }
            var peers = measured.Where(row => row != ours && (target.Peer ?? row.System) == row.System);
            if (peers.MaxBy(row => row.Median) is not { } best)
                continue;
            var ratio = ours.Median / best.Median;
            yield return $"{Verdict(target.IsMaximum ? ratio <= target.Factor : ratio >= target.Factor)}: {what}: {ratio:N2} times {best.System}, {bound}";
        }
    }

    private static string Verdict(bool reached) => reached ? "reached" : "MISSED";

    private static Target Bound(string workload, string unit, double most) => new(workload, unit, most, IsMaximum: true);

    /// <param name="Workload">The rows compared.</param>
    /// <param name="Unit">The number compared.</param>
    /// <param name="Factor">So many times the peer's median; for a maximum without a peer the number itself.</param>
    /// <param name="Peer">The peer; null: the best one, or none for a maximum.</param>
    /// <param name="IsMaximum">Whether ours may be at most, not at least, so much.</param>
    private sealed record Target(string Workload, string Unit, double Factor, string? Peer = null, bool IsMaximum = false);
}
