using KvCluster.Benchmarks.Cluster;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// What a program sees that uses the client: how long `kv` and a first call take, what calls allocate, what fails when a leader is killed, and the workloads of
/// YCSB beside Redis and etcd in the same run. How many puts and gets the library makes beside a unary client of etcd is in the suite "cluster".
/// </summary>
internal static class ClientsSuite
{
    /// <summary>The suite's name in its rows.</summary>
    public const string Name = "clients";

    /// <summary>This system in its rows.</summary>
    public const string Ours = "kvcluster, KvClient";

    /// <summary>Callers of each measurement at full load.</summary>
    public const int Callers = 256;

    /// <summary>Bytes of a value.</summary>
    public const int ValueBytes = 100;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(ClientsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        var rows = new List<BenchmarkRow>();
        await using (var servers = await KvServers.StartAsync(cancellation))
        {
            rows.AddRange(await ProgramMeasure.RunAsync(servers, plan.Quick, progress, cancellation));
            rows.AddRange(await AllocationMeasure.RunAsync(servers, plan.Quick, progress, cancellation));
            rows.AddRange(await LeaderKillMeasure.RunAsync(servers, plan.Quick, progress, cancellation));
        }
        rows.AddRange(await YcsbMeasure.RunAsync(plan, progress, cancellation));
        return rows;
    }
}
