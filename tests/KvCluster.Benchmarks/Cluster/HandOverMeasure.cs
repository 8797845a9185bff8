using System.Diagnostics;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>What a writer sees of a planned hand-over: the longest of its puts, one after the other, around it. The leader goes back and forth between two nodes.</summary>
internal static class HandOverMeasure
{
    private const int SettledPuts = 200;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, shards: 1, cancellation);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var (handedOver, undisturbed) = (new List<double>(), new List<double>());
        for (var run = 0; run < runs; run++)
        {
            var led = await servers.AllLedAsync(except: 0, cancellation);
            undisturbed.Add(await LongestPutAsync(client, Task.CompletedTask, cancellation));
            var request = new TransferRequest { Shard = 0, ToNode = (uint)led.First(node => node.Value == 0).Key };
            var transfer = servers.AdminOf(led.First(node => node.Value == 1).Key).TransferAsync(request, cancellationToken: cancellation).ResponseAsync;
            handedOver.Add(await LongestPutAsync(client, transfer, cancellation));
            await transfer;
            progress($"hand-over {run + 1} of {runs}: longest put {handedOver[^1]:F1} ms, without one {undisturbed[^1]:F1} ms");
        }

        return
        [
            BenchmarkRow.Of(FaultSuite.Name, "longest put of a writer across a planned hand-over", FaultSuite.Ours, "ms", handedOver),
            BenchmarkRow.Of(FaultSuite.Name, $"longest of {SettledPuts} puts without one", FaultSuite.Ours, "ms", undisturbed),
        ];
    }

    // Until what is under way has ended and so many puts after it.
    private static async Task<double> LongestPutAsync(KvClient client, Task underWay, CancellationToken cancellation)
    {
        var longest = 0.0;
        for (var left = SettledPuts; left > 0; left -= underWay.IsCompleted ? 1 : 0)
        {
            var begun = Stopwatch.GetTimestamp();
            await client.PutAsync("key", "value", cancellationToken: cancellation);
            longest = Math.Max(longest, Stopwatch.GetElapsedTime(begun).TotalMilliseconds);
        }

        return longest;
    }
}
