using KvCluster.Benchmarks.Engine.Peers;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// What the engine has to reach, and whether the rows of a run do. A target says where the engine is meant to get. What was accepted last says where it is, on
/// two idle cores with the disk of a virtual machine; a run that finds it much worse has found a regression. Pure.
/// </summary>
internal static class EngineTargets
{
    private static readonly Target[] All =
    [
        new(WriteRows.PutsOf(1), WriteRows.PutsPerSecond, 1.3, Accepted: 1.42),
        new(WriteRows.PutsOf(8), WriteRows.PutsPerSecond, 2, Accepted: 3.37, Peer: EngineSystem.RocksDb),
        new(WriteRows.PutsOf(WriteRows.ManyCallers), WriteRows.PutsPerSecond, 2.7, Accepted: 5.42, Peer: EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfNew, WriteRows.PutsPerSecond, 2.5, Accepted: 2.73, Peer: EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfLarge, WriteRows.PutsPerSecond, 1.5, Accepted: 1.74, Peer: EngineSystem.RocksDb),
        new(WriteRows.TransactionsOfLarge, WriteRows.PutsPerSecond, 10, Accepted: 5.64, Peer: EngineSystem.Lmdb),
        new(BudgetRows.Of(64, 1, BudgetRows.SmallBudget), WriteRows.PutsPerSecond, 6, Peer: EngineSystem.RocksDb),
        new(BudgetRows.Of(16, 100, BudgetRows.SmallBudget), WriteRows.PutsPerSecond, 1, Peer: EngineSystem.RocksDb),
        new(BudgetRows.Of(1, 100, BudgetRows.SmallBudget), WriteRows.PutsPerSecond, 2.2, Peer: EngineSystem.RocksDb),
        new(BudgetRows.Of(1, 100, BudgetRows.SmallBudget), WriteRows.PutsPerSecond, 10, Peer: EngineSystem.Lmdb),
        Bound(BudgetRows.Of(64, 1, BudgetRows.SmallBudget), WriteRows.DeviceBytes, 1_700),
        Bound(BudgetRows.Of(64, 1, BudgetRows.LargeBudget), WriteRows.DeviceBytes, 1_100),
        Bound(HeldSnapshotRows.Held, HeldSnapshotRows.GrownMebibytes, 40),
        Bound(WriteRows.PutsOf(1), WriteRows.DeviceBytes, 4_600, accepted: 11_600),
        Bound(WriteRows.PutsOf(WriteRows.ManyCallers), WriteRows.DeviceBytes, 350, accepted: 463),
        Bound(WriteRows.TransactionsOfLarge, WriteRows.DeviceBytes, 1_200, accepted: 1_560),
        Bound(WriteRows.Steady(WriteRows.PutsOf(1)), WriteRows.DeviceBytes, 4_600),
        Bound(WriteRows.Steady(WriteRows.PutsOf(WriteRows.ManyCallers)), WriteRows.DeviceBytes, 350),
        Bound(WriteRows.Steady(WriteRows.TransactionsOfLarge), WriteRows.DeviceBytes, 1_200),
        new(ReadRows.ReadsOf(1, alone: true), ReadRows.ReadsPerSecond, 1.5, Accepted: 1.97, Peer: EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(1, alone: false), ReadRows.ReadsPerSecond, 1.5, Accepted: 1.91, Peer: EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(2, alone: true), ReadRows.ReadsPerSecond, 1.5, Accepted: 1.61, Peer: EngineSystem.Lmdb),
        new(ReadRows.ReadsOf(2, alone: false), ReadRows.ReadsPerSecond, 1.5, Accepted: 1.62, Peer: EngineSystem.Lmdb),
        new(ReadRows.Scan, ReadRows.ItemsPerSecond, 1.2, Accepted: 1.29, Peer: EngineSystem.Lmdb),
        new(LoadRows.SortedLoad, LoadRows.ItemsPerSecond, 1, Accepted: 1.05, Peer: EngineSystem.Lmdb),
        new(LoadRows.SortedLoad, LoadRows.SettledItemsPerSecond, 1, Accepted: 0.95, Peer: EngineSystem.Lmdb),
        Bound(LoadRows.SortedLoad, LoadRows.FilesToRaw, 1.08, accepted: 1.06),
        new(ColdRows.Reads, ReadRows.ReadsPerSecond, 1.5, Accepted: 0.97, Peer: EngineSystem.Lmdb),
        new(ColdRows.Reads, ReadRows.ReadsPerSecond, 1, Accepted: 1.13, Peer: EngineSystem.RocksDb),
        new(ColdRows.Scan, ReadRows.ItemsPerSecond, 1, Accepted: 0.95, Peer: EngineSystem.Lmdb),
        new(ColdRows.Scan, ReadRows.ItemsPerSecond, 1, Accepted: 4.88, Peer: EngineSystem.RocksDb),
        Bound(PauseRows.Checkpoint, PutLatency.P9999, 20, accepted: 31.8),
        Bound(PauseRows.Checkpoint, PauseRows.LongestBeyondDevice, 20, accepted: 7.8),
        Bound(PauseRows.Load, PutLatency.P9999, 20, accepted: 97),
        Bound(PauseRows.Load, PauseRows.LongestBeyondDevice, 20, accepted: 62),
        new(LoadRows.Files, LoadRows.FilesToRaw, 0.8, Accepted: 0.64, Peer: EngineSystem.Lmdb, IsMaximum: true),
        Bound(OpenRows.Clean, OpenRows.Milliseconds, 100),
        Bound(OpenRows.Killed, OpenRows.Milliseconds, 2_000),
        Bound(AllocationRows.Read, AllocationRows.Bytes, 0, accepted: 0),
        Bound(AllocationRows.Put, AllocationRows.Bytes, 100, accepted: 60),
        Bound(CheckpointRows.Overwritten, CheckpointRows.FileToLive, 1.3, accepted: 1.20),
        Bound(LoadRows.RandomPuts, LoadRows.FilesToRaw, 1.35, accepted: 1.29),
        .. SpaceRows.ValueSizes.Select(static bytes => Bound(SpaceRows.Of(bytes), SpaceRows.FreshToRaw, SpaceRows.FreshMost(bytes))),
        .. SpaceRows.ValueSizes.Select(static bytes => Bound(SpaceRows.Of(bytes), SpaceRows.OverwrittenToRaw, SpaceRows.OverwrittenMost(bytes))),
        .. SpaceRows.ValueSizes.Select(static bytes => Bound(SpaceRows.Of(bytes), SpaceRows.RestToRaw, SpaceRows.FreshMost(bytes))),
    ];

    /// <summary>
    /// One line for each target that the rows decide: "reached: ...", "MISSED: ...", or "FAILED: ..." if ours has become much worse. A last line, "SKIPPED
    /// ...", names the targets without rows.
    /// </summary>
    /// <param name="rows">The rows of a run.</param>
    /// <param name="quick">
    /// Whether the measurements were short and the stores small. Then only a ratio to a peer can fail, and only if it is half of what it may fall to.
    /// </param>
    /// <param name="isWhole">Whether all groups were to be measured, so that a target without rows was skipped.</param>
    public static IEnumerable<string> Verdicts(IReadOnlyCollection<BenchmarkRow> rows, bool quick, bool isWhole)
    {
        var skipped = new List<string>();
        foreach (var target in All)
        {
            var measured = rows.Where(row => row.Suite == EngineRun.Suite && row.Workload == target.Workload && row.Unit == target.Unit).ToArray();
            var ours = measured.FirstOrDefault(row => row.System == EngineSystem.KvCluster);
            var best = target.IsAbsolute ? null : measured.Where(row => row != ours && (target.Peer ?? row.System) == row.System).MaxBy(row => row.Median);
            if (ours is null || (best is null && !target.IsAbsolute))
            {
                skipped.Add($"{target.Workload}, {target.Unit}");
                continue;
            }
            var value = best is null ? ours.Median : ours.Median / best.Median;
            var verdict = !target.Holds(value, quick) ? "FAILED" : target.IsReachedBy(value) ? "reached" : "MISSED";
            var floor = target.Accepted is { } accepted ? $", accepted before {accepted:N2}" : "";
            yield return $"{verdict}: {target.Workload}, {target.Unit}: {value:N2}{(best is null ? "" : $" times {best.System}")}, "
                + $"{(target.IsMaximum ? "at most" : "at least")} {target.Factor:N2}{floor}";
        }
        if (isWhole && skipped.Count > 0)
            yield return $"SKIPPED {skipped.Count} engine targets: {string.Join("; ", skipped)}";
    }

    private static Target Bound(string workload, string unit, double most, double? accepted = null) => new(workload, unit, most, accepted, IsMaximum: true);

    /// <param name="Workload">The rows compared.</param>
    /// <param name="Unit">The number compared.</param>
    /// <param name="Factor">So many times the peer's median; for a maximum without a peer the number itself.</param>
    /// <param name="Accepted">The value that was last accepted, of which the next ones may be <see cref="WorsePart"/> worse; null: any value is.</param>
    /// <param name="Peer">The peer; null: the best one, or none for a maximum.</param>
    /// <param name="IsMaximum">Whether ours may be at most, not at least, so much.</param>
    private sealed record Target(string Workload, string Unit, double Factor, double? Accepted = null, string? Peer = null, bool IsMaximum = false)
    {
        private const double WorsePart = 0.15;
        private const double QuickPart = 0.5;

        /// <summary>Whether the number itself counts, and not its ratio to a peer's.</summary>
        public bool IsAbsolute => this is { IsMaximum: true, Peer: null };

        /// <summary>Whether the target is reached.</summary>
        public bool IsReachedBy(double value) => IsMaximum ? value <= Factor : value >= Factor;

        /// <summary>Whether the value is not much worse than the accepted one.</summary>
        public bool Holds(double value, bool quick)
        {
            if (Accepted is not { } accepted || (quick && IsAbsolute))
                return true;
            var part = quick ? QuickPart : 1;
            return IsMaximum ? value <= accepted * (1 + WorsePart) / part : value >= accepted * (1 - WorsePart) * part;
        }
    }
}
