using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// One Redis server with an append-only file that is synced before each answer, measured by its own redis-benchmark: what a single machine without replicas
/// does. Beside three replicas over gRPC it says what these cost.
/// </summary>
internal static class Redis
{
    private const string Peer = "redis, 1 server";
    private const int ValueBytes = 100;
    private const int Keys = 100_000;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(
        string suite, IReadOnlyList<int> callerCounts, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (!RedisServer.IsInstalled || Tools.Find("redis-benchmark") is not { } benchmark)
        {
            progress("redis: redis-server or redis-benchmark is not on PATH; left out");
            return [];
        }
        await using var server = await RedisServer.StartAsync([], cancellation);
        var rows = new List<BenchmarkRow>();
        foreach (var callers in callerCounts)
        {
            // Gets find what the puts have left.
            foreach (var (test, workload) in ((string, string)[])[("set", "put"), ("get", "get")])
            {
                var runs = new List<(double Rate, double P50, double P99, double Cpu)>();
                for (var run = 0; run < (quick ? 1 : 3); run++)
                    runs.Add(await MeasureAsync(benchmark, server, test, callers, quick ? 20_000 : 200_000, cancellation));
                var name = $"{workload}, {callers} callers";
                rows.Add(BenchmarkRow.Of(suite, name, Peer, "op/s", runs.ConvertAll(static one => one.Rate)));
                rows.Add(BenchmarkRow.Of(suite, name, Peer, "p50 ms", runs.ConvertAll(static one => one.P50)));
                rows.Add(BenchmarkRow.Of(suite, name, Peer, "p99 ms", runs.ConvertAll(static one => one.P99)));
                rows.Add(BenchmarkRow.Of(suite, name, Peer, "server CPU us/op", runs.ConvertAll(static one => one.Cpu)));
                progress($"{name}, {Peer}: {rows[^4].Median:F0}/s, p99 {rows[^2].Median:F2} ms, {rows[^1].Median:F1} us CPU an operation");
            }
        }
        return rows;
    }

    private static async Task<(double Rate, double P50, double P99, double Cpu)> MeasureAsync(
        string benchmark, RedisServer server, string test, int callers, int calls, CancellationToken cancellation)
    {
        string[] arguments =
        [
            "-p", Number(server.Port), "-t", test, "-c", Number(callers), "-n", Number(calls), "-d", Number(ValueBytes), "-r", Number(Keys), "--csv",
        ];
        var before = ServerCpu.MicrosecondsOf([server.Id]);
        using var process = Process.Start(new ProcessStartInfo(benchmark, arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var errors = process.StandardError.ReadToEndAsync(cancellation);
        var lines = (await process.StandardOutput.ReadToEndAsync(cancellation)).Split('\n', StringSplitOptions.RemoveEmptyEntries);
        await process.WaitForExitAsync(cancellation);
        var cpu = (ServerCpu.MicrosecondsOf([server.Id]) - before) / calls;
        // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
        if (process.ExitCode != 0 || lines.Length != 2 || lines[1].Split(',') is not { Length: 8 } cells)
            throw new InvalidOperationException($"redis-benchmark printed no result: {string.Join(' ', lines)} {await errors}");
        return (Cell(1), Cell(4), Cell(6), cpu);

        double Cell(int index) => double.Parse(cells[index].Trim('"'), CultureInfo.InvariantCulture);
    }

    private static string Number(int number) => number.ToString(CultureInfo.InvariantCulture);
}
