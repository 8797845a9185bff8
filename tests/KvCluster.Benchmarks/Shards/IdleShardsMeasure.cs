using System.Diagnostics;
using KvCluster.Benchmarks.Cluster;

namespace KvCluster.Benchmarks.Shards;

/// <summary>
/// What a node with many idle replicas costs, and how long its shards are without a leader when it is killed. Three nodes, each with a replica of every shard
/// and about a third of the leaderships; nothing is written.
/// </summary>
internal static class IdleShardsMeasure
{
    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(ShardsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, plan.IdleShards, cancellation);
        var (idle, took) = (new List<double>(), new List<double>());
        for (var round = 1; round <= plan.Rounds; round++)
        {
            await Task.Delay(plan.Settle, cancellation);
            idle.AddRange(await CpuAsync(servers, plan.IdleTime, cancellation));
            var (node, led) = (await servers.AllLedAsync(except: 0, cancellation)).MaxBy(static entry => entry.Value);
            var started = Stopwatch.GetTimestamp();
            await servers.KillAsync(node);
            await servers.AllLedAsync(except: node, cancellation);
            took.Add(Stopwatch.GetElapsedTime(started).TotalSeconds);
            var cpu = string.Join(", ", idle.TakeLast(FaultSuite.Nodes).Select(static percent => $"{percent:F1}"));
            progress($"{plan.IdleShards} idle shards, round {round} of {plan.Rounds}: {cpu} % of a core; {led} leaderships taken over in {took[^1]:F2} s");
            servers.Start(node);
            await servers.AllLedAsync(except: 0, cancellation);
        }

        return
        [
            BenchmarkRow.Of(ShardsSuite.Name, $"CPU of a node, {plan.IdleShards} idle replicas", ShardsSuite.Ours, "% of a core", idle),
            BenchmarkRow.Of(ShardsSuite.Name, $"leader of a third of {plan.IdleShards} shards dies: all led", ShardsSuite.Ours, "s", took),
        ];
    }

    private static async Task<IEnumerable<double>> CpuAsync(NodeServers servers, TimeSpan time, CancellationToken cancellation)
    {
        var before = servers.Processes.Select(static process => ServerCpu.MicrosecondsOf([process])).ToArray();
        var started = Stopwatch.GetTimestamp();
        await Task.Delay(time, cancellation);
        var elapsed = Stopwatch.GetElapsedTime(started).TotalMicroseconds;
        return servers.Processes.Select((process, index) => (ServerCpu.MicrosecondsOf([process]) - before[index]) / elapsed * 100);
    }
}
