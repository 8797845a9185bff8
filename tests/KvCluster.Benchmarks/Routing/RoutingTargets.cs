namespace KvCluster.Benchmarks.Routing;

/// <summary>What routing may cost, and whether the rows of a run say so. Pure.</summary>
internal static class RoutingTargets
{
    private static readonly (string Workload, string Unit, double Most)[] All =
    [
        (RoutingSuite.LearnFirst, "ms", 1_000),
        (RoutingSuite.FileOrder, "ns", 30),
        (RoutingSuite.FileOrder, RoutingSuite.Bytes, 0),
        (RoutingSuite.Shuffled, "ns", 200),
        (RoutingSuite.Shuffled, RoutingSuite.Bytes, 0),
    ];

    /// <summary>One line for each target: "reached: ..." or "MISSED: ...".</summary>
    public static IEnumerable<string> Verdicts(IReadOnlyCollection<BenchmarkRow> rows) =>
        from target in All
        from row in rows
        where row.Suite == RoutingSuite.Suite && row.Workload == target.Workload && row.Unit == target.Unit
        select $"{(row.Median <= target.Most ? "reached" : "MISSED")}: {target.Workload}, {target.Unit}: {row.Median:N2}, at most {target.Most:N0}";
}
