namespace KvCluster.Benchmarks;

/// <summary>One measured number of a suite: a row of the table and of the JSON file.</summary>
/// <param name="Suite">"api", "clients", "grpc", "engine", "cluster", "etag", "faults", "routing", "shards" or "telemetry".</param>
/// <param name="Workload">The operation and the number of callers: "unary put, 64 callers".</param>
/// <param name="System">The system measured: "kvcluster" or a peer's name.</param>
/// <param name="Unit">The unit of the three numbers: "op/s", "ns", "us", "ms", "bytes", "ratio".</param>
/// <param name="Median">Median of the runs.</param>
/// <param name="Min">Minimum of the runs.</param>
/// <param name="Max">Maximum of the runs.</param>
/// <param name="Runs">The number of runs.</param>
internal sealed record BenchmarkRow(string Suite, string Workload, string System, string Unit, double Median, double Min, double Max, int Runs)
{
    /// <summary>Makes a row of the values of one or more runs.</summary>
    public static BenchmarkRow Of(string suite, string workload, string system, string unit, IReadOnlyCollection<double> values)
    {
        ArgumentOutOfRangeException.ThrowIfZero(values.Count);
        var sorted = values.Order().ToArray();
        var middle = sorted.Length / 2;
        var median = sorted.Length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
        return new BenchmarkRow(suite, workload, system, unit, median, sorted[0], sorted[^1], sorted.Length);
    }
}
