using System.Diagnostics;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// The delay of a writer by a planned transfer: the longest of its puts around it, one after the other. The leadership goes back and forth between
/// two nodes. If it moves by itself during a run, as when it returns to the preferred node, the run is repeated.
/// </summary>
internal static class TransferMeasure
{
    private const int SettledPuts = 200;
    private const int MovedMax = 5;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(FaultSuite.Nodes, shards: 1, cancellation);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var (transferred, undisturbed) = (new List<double>(), new List<double>());
        for (var moved = 0; transferred.Count < runs;)
        {
            var led = await servers.AllLedAsync(except: 0, cancellation);
            var (from, to) = (led.First(node => node.Value == 1).Key, led.First(node => node.Value == 0).Key);
            var calm = await LongestPutAsync(client, Task.CompletedTask, cancellation);
            var transfer = servers.AdminOf(from)
                .TransferAsync(new TransferRequest { Shard = 0, ToNode = (uint)to }, cancellationToken: cancellation).ResponseAsync;
            var longest = await LongestPutAsync(client, transfer, cancellation);
            if (transfer.IsFaulted || (await servers.AllLedAsync(except: 0, cancellation))[to] == 0)
            {
                var reason = transfer.IsFaulted ? (transfer.Exception.InnerException as RpcException)?.Status.Detail ?? throw transfer.Exception
                    : $"node {to} led for a moment only.";
                progress($"transfer from node {from} to node {to}: {reason} The leadership has moved by itself, {++moved} so far; the run is repeated.");
                if (moved > MovedMax)
                    throw new InvalidOperationException($"The leadership moved by itself in {moved} of {transferred.Count + moved} runs: nothing to measure.");
                continue;
            }

            undisturbed.Add(calm);
            transferred.Add(longest);
            progress($"transfer {transferred.Count} of {runs}: longest put {longest:F1} ms, without one {calm:F1} ms");
        }

        return
        [
            BenchmarkRow.Of(FaultSuite.Name, "longest put of a writer across a planned transfer", FaultSuite.Ours, "ms", transferred),
            BenchmarkRow.Of(FaultSuite.Name, $"longest of {SettledPuts} puts without one", FaultSuite.Ours, "ms", undisturbed),
        ];
    }

    // Until the task has ended, and this many further puts.
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
