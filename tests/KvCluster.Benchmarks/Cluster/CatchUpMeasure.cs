using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>How fast a restarted follower receives what was written while it was down, without load, from its first answer after its start.</summary>
internal static class CatchUpMeasure
{
    private const int ValueBytes = 64 << 10;

    // 192 MiB, less than the journal kept for such a follower.
    private const int Values = 3072;
    private const int Writers = 8;
    private const int WriteBytes = 256 << 10;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, shards: 1, cancellation);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var value = new byte[ValueBytes];
        new Random(7).NextBytes(value);
        var rates = new List<double>();
        for (var run = 0; run < runs; run++)
        {
            var led = await servers.AllLedAsync(except: 0, cancellation);
            var (leader, follower) = (led.First(node => node.Value == 1).Key, led.First(node => node.Value == 0).Key);
            await servers.KillAsync(follower);
            var next = 0;
            await Task.WhenAll(Enumerable.Range(0, Writers).Select(_ => Task.Run(
                async () =>
                {
                    for (var number = Interlocked.Increment(ref next); number <= Values; number = Interlocked.Increment(ref next))
                        await client.PutAsync(System.Text.Encoding.UTF8.GetBytes($"large/{number % 64}"), value, cancellationToken: cancellation);
                },
                cancellation)));
            var goal = (await servers.ReplicaAsync(leader, cancellation))!.Committed;
            servers.Start(follower);
            V1.ReplicaStatus? first = null;
            while (first?.Durable is not { Change: > 0 })
                first = await servers.ReplicaAsync(follower, cancellation);
            var started = Stopwatch.GetTimestamp();
            while ((await servers.ReplicaAsync(follower, cancellation))!.Durable.Change < goal.Change)
                await Task.Delay(5, cancellation);
            var missed = (double)(goal.Change - first.Durable.Change) * ValueBytes / 1e6;
            rates.Add(missed / Stopwatch.GetElapsedTime(started).TotalSeconds);
            progress($"catch-up, run {run + 1} of {runs}: {missed:F0} MB at {rates[^1]:F0} MB/s");
        }

        var device = Enumerable.Range(0, runs)
            .Select(_ => DeviceWrites.PerSecond(Path.GetTempPath(), WriteBytes, TimeSpan.FromSeconds(1)) * WriteBytes / 1e6).ToList();
        return
        [
            BenchmarkRow.Of(FaultSuite.Name, "follower catches up from the journal, values of 64 KiB", FaultSuite.Ours, "MB/s", rates),
            BenchmarkRow.Of(FaultSuite.Name, "synced writes of 256 KiB, one after the other", "device", "MB/s", device),
        ];
    }
}
