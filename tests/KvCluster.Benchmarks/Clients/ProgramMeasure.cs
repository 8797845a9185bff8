using System.Diagnostics;
using System.Globalization;
using System.Text.Json;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Cli.Bench;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// How long new processes take: `kv get` from its start to its end, and the first call of a new client. The first process of each kind only fills caches and
/// does not count.
/// </summary>
internal static class ProgramMeasure
{
    public const string Get = "kv get, whole process";
    public const string FirstCall = "first get of a new client in a new process";
    public const string AheadOfTime = "compiled ahead of time (kv)";
    public const string Unit = "ms";

    private const string Native = "compiled natively";
    private const string AtRunTime = "compiled at run time";

    /// <summary>Names a `kv` that was compiled natively. A build makes none.</summary>
    private const string NativeVariable = "KV_NATIVE";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var key = new KvKey(BenchKeys.At(0));
        await using (var client = new KvClient(servers.RouterAddress))
        {
            await client.PutAsync(key, "value", cancellationToken: cancellation);
        }
        var runs = quick ? 5 : 20;
        var kv = Tools.Built("kv", "KvCluster.Cli");
        var rows = new List<BenchmarkRow>();
        await AddAsync(Get, AheadOfTime, () => GetAsync(kv));
        await AddAsync(FirstCall, AheadOfTime, () => FirstOfKvAsync(kv));
        if (Environment.GetEnvironmentVariable(NativeVariable) is { Length: > 0 } native)
        {
            await AddAsync(Get, Native, () => GetAsync(native));
            await AddAsync(FirstCall, Native, () => FirstOfKvAsync(native));
        }
        else
        {
            progress($"SKIPPED {Get} and {FirstCall}, {Native}: {NativeVariable} names no such program");
        }
        await AddAsync(FirstCall, AtRunTime, FirstOfThisProgramAsync);
        return rows;

        async Task AddAsync(string workload, string system, Func<Task<double>> measure)
        {
            _ = await measure();
            var took = new List<double>();
            for (var run = 0; run < runs; run++)
            {
                cancellation.ThrowIfCancellationRequested();
                took.Add(await measure());
            }
            rows.Add(BenchmarkRow.Of(ClientsSuite.Name, workload, system, Unit, took));
            progress($"{workload}, {system}: {rows[^1].Median:F0} ms, {rows[^1].Min:F0} to {rows[^1].Max:F0} ms in {runs} runs");
        }

        async Task<double> GetAsync(string program)
        {
            var started = Stopwatch.GetTimestamp();
            await OutputOfAsync(program, ["get", key.ToUtf8String(), "--endpoint", servers.RouterAddress]);
            return Stopwatch.GetElapsedTime(started).TotalMilliseconds;
        }

        // The first of its calls is by far its longest.
        async Task<double> FirstOfKvAsync(string program)
        {
            using var document = JsonDocument.Parse(await OutputOfAsync(
                program, ["bench", "get", "--callers", "1", "--keys", "1", "--seconds", "0.1", "--output", "json", "--endpoint", servers.RouterAddress]));
            return document.RootElement.GetProperty("max_ms").GetDouble();
        }

        async Task<double> FirstOfThisProgramAsync()
        {
            var (exitCode, output, error) = await OwnProgram.RunAsync(FirstCallCommand.Name, servers.RouterAddress);
            return exitCode == 0
                ? double.Parse(output, CultureInfo.InvariantCulture)
                : throw new InvalidOperationException($"The process of a first call failed: {error}");
        }
    }

    private static async Task<string> OutputOfAsync(string program, string[] arguments)
    {
        var (exitCode, output, error) = await Tools.RunAsync(program, arguments);
        return exitCode == 0 ? output : throw new InvalidOperationException($"{program} {string.Join(' ', arguments)} exited with {exitCode}: {error}");
    }
}
