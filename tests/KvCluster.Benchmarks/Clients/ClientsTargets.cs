namespace KvCluster.Benchmarks.Clients;

/// <summary>What the client has to reach, and whether the rows of a run do. Pure.</summary>
internal static class ClientsTargets
{
    /// <summary>
    /// What is worse than so many times a bound has failed, also on a busy machine. Times of processes mean little there.
    /// </summary>
    private static readonly (string Workload, string System, string Unit, double Most, double Far)[] Bounds =
    [
        (ProgramMeasure.Get, ProgramMeasure.AheadOfTime, ProgramMeasure.Unit, 120, Far: 10),
        (ProgramMeasure.FirstCall, ProgramMeasure.AheadOfTime, ProgramMeasure.Unit, 60, Far: 10),
        (AllocationMeasure.Put, ClientsSuite.Ours, AllocationMeasure.Unit, 600, Far: 2),
        (AllocationMeasure.Get, ClientsSuite.Ours, AllocationMeasure.Unit, 600, Far: 2),
        (LeaderKillMeasure.Workload, ClientsSuite.Ours, LeaderKillMeasure.Failed, 0, Far: double.PositiveInfinity),
    ];

    /// <summary>
    /// One line for each target that the rows decide: "reached: ...", "MISSED: ...", or "FAILED: ..." if it is missed by far. Redis has no replicas, so that no
    /// distance from it is far.
    /// </summary>
    public static IEnumerable<string> Verdicts(IReadOnlyCollection<BenchmarkRow> rows)
    {
        var ours = rows.Where(static row => row.Suite == ClientsSuite.Name).ToArray();
        foreach (var (workload, system, unit, most, far) in Bounds)
        {
            if (ours.FirstOrDefault(one => one.Workload == workload && one.System == system && one.Unit == unit) is not { } row)
                continue;
            var isFar = !double.IsInfinity(far) && row.Median > most * far;
            yield return $"{Verdict(row.Median <= most, isFar)}: {workload}, {system}, {unit}: {row.Median:N1}, at most {most:N0}";
        }
        foreach (var workload in YcsbMeasure.Workloads)
        {
            var rates = ours.Where(row => row.Workload == workload && row.Unit == YcsbMeasure.OperationsPerSecond).ToArray();
            if (rates.FirstOrDefault(static row => row.System == ClientsSuite.Ours) is not { } own)
                continue;
            foreach (var peer in rates.Where(static row => row.System != ClientsSuite.Ours))
            {
                var ratio = own.Median / peer.Median;
                var isFar = ratio < 0.5 && peer.System == EtcdStore.Peer;
                yield return $"{Verdict(ratio >= 1, isFar)}: {workload}, op/s: {ratio:N2} times {peer.System}, at least 1";
            }
        }
    }

    private static string Verdict(bool isReached, bool isFar) => isReached ? "reached" : isFar ? "FAILED" : "MISSED";
}
