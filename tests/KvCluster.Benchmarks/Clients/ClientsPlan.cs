namespace KvCluster.Benchmarks.Clients;

/// <summary>What a run of the clients suite measures.</summary>
/// <param name="Quick">Fewer and shorter runs for CI.</param>
/// <param name="Records">Records of YCSB, in the systems that bear so many.</param>
/// <param name="Time">How long each workload of YCSB runs in each system, in three windows.</param>
internal sealed record ClientsPlan(bool Quick, int Records, TimeSpan Time)
{
    /// <summary>The full size, or a short one for CI, with what the command line sets.</summary>
    public static ClientsPlan Of(bool quick, int? records, double? seconds) =>
        new(quick, records ?? (quick ? 100_000 : 10_000_000), TimeSpan.FromSeconds(seconds ?? (quick ? 3 : 20)));
}
