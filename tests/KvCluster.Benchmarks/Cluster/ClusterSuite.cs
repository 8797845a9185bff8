using Etcdserverpb;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// Durable puts and linearizable gets of whole clusters: three node processes and a router, beside a three-node etcd on the same
/// machine and disk in the same run. Both are driven by the same C# unary client at their leader; ours by its own library and once by ghz besides.
/// Runs of the systems alternate, so that a machine that slows down slows all of them.
/// </summary>
internal static class ClusterSuite
{
    private const string Name = "cluster";
    private const string Ours = "kvcluster, unary";
    private const string OursByLibrary = "kvcluster, KvClient";
    private const string Peer = "etcd, unary";
    private static readonly int[] CallerCounts = [64, 256];

    public static async Task<IReadOnlyList<BenchmarkRow>> Run(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var keys = new KeySpace(seed: 7);
        await using var servers = await KvServers.StartAsync(cancellation);
        await using var etcd = await EtcdServers.StartAsync(cancellation);
        if (etcd is null)
            progress("etcd: not on PATH and not beside the repository; left out");
        using var ourChannels = new Channels(servers.LeaderAddress);
        using var etcdChannels = etcd is null ? null : new Channels(etcd.LeaderAddress);
        await using var library = new KvClient(servers.RouterAddress);

        List<ClusterTarget> targets = [Unary(ourChannels, servers, keys), ByLibrary(library, servers, keys)];
        if (etcd is not null)
            targets.Insert(1, Etcd(etcdChannels!, etcd, keys));
        foreach (var target in targets)
            await FillAsync(target, keys);

        var rows = new List<BenchmarkRow>();
        foreach (var callers in CallerCounts)
        {
            rows.AddRange(await MeasureAsync($"put, {callers} callers", callers, targets, static target => target.Put, quick, progress, cancellation));
            rows.AddRange(await MeasureAsync($"get, {callers} callers", callers, targets, static target => target.Get, quick, progress, cancellation));
        }

        rows.AddRange(await Ghz.RunAsync(servers, etcd, keys, quick, progress, cancellation));
        return rows;
    }

    private static async Task<List<BenchmarkRow>> MeasureAsync(
        string workload, int callers, List<ClusterTarget> targets, Func<ClusterTarget, Func<int, int, Task>> operation, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var (runs, duration) = quick ? (1, TimeSpan.FromSeconds(2)) : (5, TimeSpan.FromSeconds(4));
        var outcomes = targets.ToDictionary(target => target.Name, _ => new List<ClosedLoop.Outcome>());
        foreach (var target in targets)
            await ClosedLoop.RunAsync(callers, duration / 2, target.Servers, operation(target), cancellation);
        for (var run = 0; run < runs; run++)
        {
            foreach (var target in targets)
            {
                var outcome = await ClosedLoop.RunAsync(callers, duration, target.Servers, operation(target), cancellation);
                outcomes[target.Name].Add(outcome);
                progress($"{workload}, run {run + 1} of {runs}, {target.Name}: {outcome.OperationsPerSecond:F0}/s, p50 {outcome.P50Milliseconds:F2} ms, p99 {outcome.P99Milliseconds:F2} ms, {outcome.CpuMicroseconds:F1} us CPU an operation");
            }
        }

        return [.. outcomes.SelectMany(system => RowsOf(workload, system.Key, system.Value))];
    }

    private static IEnumerable<BenchmarkRow> RowsOf(string workload, string system, List<ClosedLoop.Outcome> outcomes) =>
    [
        BenchmarkRow.Of(Name, workload, system, "op/s", outcomes.ConvertAll(outcome => outcome.OperationsPerSecond)),
        BenchmarkRow.Of(Name, workload, system, "p50 ms", outcomes.ConvertAll(outcome => outcome.P50Milliseconds)),
        BenchmarkRow.Of(Name, workload, system, "p99 ms", outcomes.ConvertAll(outcome => outcome.P99Milliseconds)),
        BenchmarkRow.Of(Name, workload, system, "server CPU us/op", outcomes.ConvertAll(outcome => outcome.CpuMicroseconds)),
    ];

    private static ClusterTarget Unary(Channels channels, KvServers servers, KeySpace keys)
    {
        var clients = channels.Clients(channel => new Kv.KvClient(channel));
        return new ClusterTarget(Ours, servers.Processes,
            async (caller, number) => await clients[caller % clients.Length].PutAsync(new V1.PutRequest { Key = keys.Key(number), Value = keys.Value(number) }),
            async (caller, number) => Found((await clients[caller % clients.Length].GetAsync(new GetRequest { Key = keys.Key(number) })).Found));
    }

    private static ClusterTarget Etcd(Channels channels, EtcdServers servers, KeySpace keys)
    {
        var clients = channels.Clients(channel => new KV.KVClient(channel));
        return new ClusterTarget(Peer, servers.Processes,
            async (caller, number) => await clients[caller % clients.Length].PutAsync(new Etcdserverpb.PutRequest { Key = keys.Key(number), Value = keys.Value(number) }),
            async (caller, number) => Found((await clients[caller % clients.Length].RangeAsync(new RangeRequest { Key = keys.Key(number) })).Count == 1));
    }

    private static ClusterTarget ByLibrary(KvClient client, KvServers servers, KeySpace keys) => new(OursByLibrary, servers.Processes,
        async (_, number) => await client.PutAsync(keys.Key(number).Memory, keys.Value(number).Memory),
        async (_, number) => Found((await client.GetAsync(keys.Key(number).Memory)).Found));

    // Every key that a get may ask for is there.
    private static Task FillAsync(ClusterTarget target, KeySpace keys) =>
        Parallel.ForEachAsync(Enumerable.Range(0, keys.Keys.Count), new ParallelOptions { MaxDegreeOfParallelism = 128 }, async (number, _) => await target.Put(number % 128, number));

    private static void Found(bool found)
    {
        if (!found)
            throw new InvalidOperationException("A key that was put is not found: the numbers would be of something else.");
    }
}
