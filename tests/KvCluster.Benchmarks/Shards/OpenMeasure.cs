using System.Diagnostics;
using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Shards;

/// <summary>
/// How long a node without others that is killed (SIGKILL) takes from its start until it has opened all its replicas: many with a journal, one with as much
/// journal, and many with nothing in it. The page cache stays, so the processors are measured and not what a disk needs for reads.
/// </summary>
/// <remarks>
/// Nothing prevents checkpoints, but the node is killed at the end of the load, before a store is quiescent, and each store's part is less than starts one.
/// So a journal of 1 GB can be had in many shards only, and the comparison with one shard is made with less.
/// </remarks>
internal static class OpenMeasure
{
    private const int ValueBytes = 4_000;
    private const int Callers = 64;

    // So few that changed pages start no checkpoint either: 40 MB.
    private const int KeysOfShard = 160;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(ShardsPlan plan, Action<string> progress, CancellationToken cancellation)
    {
        var (large, many, one, idle) = (new List<double>(), new List<double>(), new List<double>(), new List<double>());
        for (var round = 0; round < plan.Rounds; round++)
        {
            large.Add(await OpenAsync(ShardsSuite.Many, plan.JournalBytes));
            one.Add(await OpenAsync(shards: 1, plan.FewJournalBytes));
            many.Add(await OpenAsync(ShardsSuite.Many, plan.FewJournalBytes));
            idle.Add(await OpenAsync(plan.IdleReplicas, journalBytes: 0));
        }
        var (megabytes, few) = ($"{plan.JournalBytes / 1_000_000:N0} MB", $"{plan.FewJournalBytes / 1_000_000:N0} MB");
        return
        [
            Row($"{ShardsSuite.Many} replicas, {megabytes}", "ms", large),
            Row($"1 replica, {few}", "ms", one),
            Row($"{ShardsSuite.Many} replicas, {few}", "ms", many),
            Row($"{ShardsSuite.Many} replicas to 1, {few}", "ms ratio", ShardsSuite.Ratios(one, many)),
            Row($"{plan.IdleReplicas:N0} idle replicas", "ms", idle),
            Row($"{plan.IdleReplicas:N0} idle replicas, each", "ms", [.. idle.Select(milliseconds => milliseconds / plan.IdleReplicas)]),
        ];

        // On a new cluster each time: what earlier rounds left in the journal would be read too.
        async Task<double> OpenAsync(int shards, long journalBytes)
        {
            await using var servers = await NodeServers.StartAsync(nodes: 1, shards, cancellation);
            var puts = (int)(journalBytes / ValueBytes);
            await LoadAsync(servers, puts, cancellation);
            await servers.KillAsync(node: 1);
            var started = Stopwatch.GetTimestamp();
            servers.Start(node: 1);
            await servers.AllOpenAsync(node: 1, cancellation);
            var took = Stopwatch.GetElapsedTime(started).TotalMilliseconds;
            progress($"open: {shards:N0} replicas, {puts:N0} puts of {ValueBytes:N0} bytes: {took:F0} ms");
            return took;
        }
    }

    private static async Task LoadAsync(NodeServers servers, int puts, CancellationToken cancellation)
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var values = ManyKeys.Values(ValueBytes);
        var options = new ParallelOptions { MaxDegreeOfParallelism = Callers, CancellationToken = cancellation };
        await Parallel.ForEachAsync(Enumerable.Range(0, puts), options, async (number, stopped) =>
        {
            var key = ShardedCluster.Key(number % ShardsSuite.Many, $"{number / ShardsSuite.Many % KeysOfShard:D4}");
            await client.PutAsync(key, values[number % values.Length], cancellationToken: stopped);
        });
    }

    private static BenchmarkRow Row(string replicas, string unit, IReadOnlyCollection<double> values) =>
        BenchmarkRow.Of(ShardsSuite.Name, $"open after a kill, {replicas}", ShardsSuite.Ours, unit, values);
}
