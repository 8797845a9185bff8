using System.Diagnostics;
using System.Globalization;
using System.Text.Json;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// The same load from an independent client, `ghz`, once against each system. It needs several times more CPU per call than the servers, so it
/// measures itself. It shows that both are called in the same way and that latency is no artefact of our client.
/// </summary>
internal static class Ghz
{
    private const int Callers = 64;
    private const int Connections = 4;
    private const int AttemptsMax = 3;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(
        KvServers servers, string? etcdLeader, KeySpace keys, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (Tools.Find("ghz") is not { } program)
        {
            progress("ghz: not on PATH and not beside the repository; left out");
            return [];
        }

        using var folder = new TemporaryDirectory();
        var puts = Path.Combine(folder.Path, "put.json");
        var gets = Path.Combine(folder.Path, "get.json");
        await File.WriteAllTextAsync(
            puts, JsonSerializer.Serialize(keys.Keys.Select((key, number) => new { key = key.ToBase64(), value = keys.Value(number).ToBase64() })),
            cancellation);
        await File.WriteAllTextAsync(gets, JsonSerializer.Serialize(keys.Keys.Select(key => new { key = key.ToBase64() })), cancellation);

        var rows = new List<BenchmarkRow>();
        // Ours by reflection, since ghz does not parse every construct of proto3. etcd, which has no reflection, by the part of its proto that we use.
        var protos = Path.Combine(Tools.Repository(), "proto", "Contract");
        string[] etcdProto = ["--proto", Path.Combine(protos, "etcd", "rpc.proto"), "--import-paths", protos];
        await LoadAsync("put", "kvcluster, ghz", "kvcluster.v1.Kv/Put", [], puts, () => servers.LeaderAddress);
        if (etcdLeader is not null)
            await LoadAsync("put", "etcd, ghz", "etcdserverpb.KV/Put", etcdProto, puts, () => etcdLeader);
        await LoadAsync("get", "kvcluster, ghz", "kvcluster.v1.Kv/Get", [], gets, () => servers.LeaderAddress);
        if (etcdLeader is not null)
            await LoadAsync("get", "etcd, ghz", "etcdserverpb.KV/Range", etcdProto, gets, () => etcdLeader);
        return rows;

        async Task LoadAsync(string workload, string system, string call, string[] proto, string data, Func<string> address)
        {
            for (var attempt = 1; ; attempt++)
            {
                string[] arguments =
                [
                    .. proto, "--insecure", "--call", call, "-D", data, "-O", "json", "--connections", Number(Connections),
                    "-c", Number(Callers), "-n", quick ? "10000" : "50000", new Uri(address()).Authority,
                ];
                using var process = Process.Start(new ProcessStartInfo(program, arguments) { RedirectStandardOutput = true })!;
                using var report = await JsonDocument.ParseAsync(process.StandardOutput.BaseStream, cancellationToken: cancellation);
                await process.WaitForExitAsync(cancellation);
                var calls = report.RootElement.GetProperty("count").GetInt64();
                var good = report.RootElement.GetProperty("statusCodeDistribution").TryGetProperty("OK", out var ok) ? ok.GetInt64() : 0;
                if (good == calls)
                {
                    Add(workload, system, report.RootElement);
                    return;
                }

                var led = address();
                await servers.FindLeaderAsync(cancellation);
                if (attempt == AttemptsMax || address() == led)
                    throw new InvalidOperationException($"ghz, {system}: {calls - good} of {calls} calls failed.");
                progress($"{workload}, {system}: {calls - good} of {calls} calls failed, since the leadership moved by itself from {led} to {address()}. "
                    + "The run is repeated.");
            }
        }

        void Add(string workload, string system, JsonElement report)
        {
            var name = $"{workload}, {Callers} callers";
            rows.Add(BenchmarkRow.Of("cluster", name, system, "op/s", [report.GetProperty("rps").GetDouble()]));
            foreach (var part in report.GetProperty("latencyDistribution").EnumerateArray())
                if (part.GetProperty("percentage").GetInt32() is 50 or 99)
                    rows.Add(BenchmarkRow.Of(
                        "cluster", name, system, $"p{part.GetProperty("percentage").GetInt32()} ms", [part.GetProperty("latency").GetInt64() / 1e6]));
            progress($"{name}, {system}: {rows[^3].Median:F0}/s");
        }
    }

    private static string Number(int value) => value.ToString(CultureInfo.InvariantCulture);
}
