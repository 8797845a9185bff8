using System.Diagnostics;
using System.Globalization;
using System.Text;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Api;

/// <summary>
/// The file list of a Linux distribution loaded in key order with <see cref="KvClient.BulkLoad"/>, each entry durable on two of three replicas, and scanned
/// again. Each run loads keys that are not there yet, below a prefix of its own. The first one warms the programs up and does not count.
/// </summary>
internal static class LoadMeasure
{
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (await PackageFiles.ReadAsync(progress) is not { } text)
            return [];
        await using var client = new KvClient(servers.RouterAddress);
        var (loads, scans, cpu) = (new List<double>(), new List<double>(), new List<double>());
        for (var run = 0; run <= (quick ? 1 : 3); run++)
        {
            var prefix = Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"load/{run}/"));
            var (cpuBefore, began) = (ServerCpu.MicrosecondsOf(servers.Processes), Stopwatch.GetTimestamp());
            var entries = await LoadAsync(client, text, prefix, cancellation);
            var loaded = entries / Stopwatch.GetElapsedTime(began).TotalSeconds;
            var micros = (ServerCpu.MicrosecondsOf(servers.Processes) - cpuBefore) / entries;
            began = Stopwatch.GetTimestamp();
            var found = 0L;
            await foreach (var entry in client.ScanAsync(new KvScan { Prefix = prefix }, cancellation))
                found++;
            var scanned = found / Stopwatch.GetElapsedTime(began).TotalSeconds;
            if (found != entries)
                throw new InvalidOperationException($"{entries:N0} entries were loaded and {found:N0} found.");
            progress($"load and scan, run {run}: {loaded:N0} entries/s loaded, {micros:F2} us CPU of the servers each, {scanned:N0} entries/s scanned");
            if (run == 0)
                continue;
            loads.Add(loaded);
            scans.Add(scanned);
            cpu.Add(micros);
        }
        return
        [
            BenchmarkRow.Of(ApiSuite.Name, "BulkLoad of files.tsv in key order", "kvcluster, KvClient", "entries/s", loads),
            BenchmarkRow.Of(ApiSuite.Name, "BulkLoad of files.tsv in key order", "kvcluster, KvClient", "server CPU us/op", cpu),
            BenchmarkRow.Of(ApiSuite.Name, "scan of files.tsv", "kvcluster, KvClient", "entries/s", scans),
        ];
    }

    private static async Task<long> LoadAsync(KvClient client, ReadOnlyMemory<byte> text, byte[] prefix, CancellationToken cancellation)
    {
        await using var load = client.BulkLoad();
        var key = new byte[KvLimits.KeyBytesMax];
        prefix.CopyTo(key, 0);
        foreach (var (path, value) in PackageFiles.RecordsIn(text))
        {
            path.CopyTo(key.AsMemory(prefix.Length));
            await load.AddAsync(new KvKey(key.AsMemory(0, prefix.Length + path.Length)), value, cancellation);
        }
        await load.FlushAsync(cancellation);
        return load.Acknowledged;
    }
}
