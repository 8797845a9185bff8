using System.Globalization;
using Etcdserverpb;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// Durable puts and linearizable gets of whole clusters: three node processes and a router, beside a three-node etcd on the same machine and disk in
/// the same run. Both are called at their leader by the same C# unary client; ours also by its own library, and once by ghz. Runs of the systems
/// alternate, so that a machine that slows down slows all of them.
/// </summary>
internal static class ClusterSuite
{
    private const string Name = "cluster";
    private const string Ours = "kvcluster, unary";
    private const string OursByLibrary = "kvcluster, KvClient";
    private const string OursWithoutIds = "kvcluster, KvClient without request ids";
    private const string OursByQuorum = "kvcluster, unary, QUORUM";
    private const string Peer = "etcd, unary";
    private const int AttemptsMax = 5;
    private const int EtcdNodes = 3;
    private const int WarmUpsMax = 8;
    private const double SettledPart = 0.85;

    private static readonly int[] CallerCounts = [64, 256];

    public static async Task<IReadOnlyList<BenchmarkRow>> Run(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var keys = new KeySpace(seed: 7);
        await using var servers = await KvServers.StartAsync(cancellation);
        await using var etcd = await StartEtcdAsync(progress);
        var etcdLeader = etcd?.Endpoints[await etcd.LeaderAsync()];
        using var ours = new LeaderChannels(servers);
        using var etcdChannels = etcdLeader is null ? null : new Channels(etcdLeader);
        await using var library = new KvClient(servers.RouterAddress);
        await using var withoutIds = new KvClient(new KvClientOptions { Endpoints = [servers.RouterAddress], ExactlyOnce = false });

        List<ClusterTarget> targets = [Unary(ours, servers, keys), ByLibrary(OursByLibrary, library, servers, keys)];
        if (etcd is not null)
            targets.Insert(1, Etcd(etcdChannels!, etcd, keys));
        foreach (var target in targets.Where(target => target.Name != Ours))
            await FillAsync(target, keys);

        // The cost of exactly-once: the same puts without their ids, alternating with the others.
        List<ClusterTarget> putTargets = [.. targets, ByLibrary(OursWithoutIds, withoutIds, servers, keys)];
        // etcd confirms every read by a round to its members. In this mode ours do, too.
        List<ClusterTarget> getTargets = [.. targets, Unary(ours, servers, keys) with { Name = OursByQuorum, Get = QuorumGet(ours, keys) }];
        var rows = new List<BenchmarkRow>();
        foreach (var callers in CallerCounts)
        {
            rows.AddRange(await MeasureAsync($"put, {callers} callers", callers, putTargets, static target => target.Put, quick, progress, cancellation));
            rows.AddRange(await MeasureAsync($"get, {callers} callers", callers, getTargets, static target => target.Get, quick, progress, cancellation));
        }

        rows.AddRange(await Redis.RunAsync(Name, CallerCounts, quick, progress, cancellation));
        rows.AddRange(await Ghz.RunAsync(servers, etcdLeader, keys, quick, progress, cancellation));
        if (!quick)
        {
            rows.AddRange(await RunManyKeysAsync(quick, progress, cancellation));
            rows.AddRange(await RunMixedLoadAsync(quick, progress, cancellation));
        }
        return rows;
    }

    /// <summary>Only its part with many keys, which has no quick form.</summary>
    public static Task<IReadOnlyList<BenchmarkRow>> RunManyKeysAsync(bool quick, Action<string> progress, CancellationToken cancellation) =>
        ManyKeysMeasure.RunAsync(Name, OursByLibrary, progress, cancellation);

    /// <summary>Only its part at a steady rate, which has no quick form.</summary>
    public static async Task<IReadOnlyList<BenchmarkRow>> RunMixedLoadAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (EtcdProcesses.AreAvailable)
            return await MixedLoadMeasure.RunAsync(Name, OursByLibrary, progress, cancellation);
        progress("etcd, the coordinator of the mixed load's nodes: not on PATH and not beside the repository; left out");
        return [];
    }

    private static async Task<List<BenchmarkRow>> MeasureAsync(
        string workload, int callers, List<ClusterTarget> targets, Func<ClusterTarget, Func<int, int, Task>> operation,
        bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var (runs, duration) = quick ? (1, TimeSpan.FromSeconds(2)) : (5, TimeSpan.FromSeconds(4));
        var outcomes = targets.ToDictionary(target => target.Name, _ => new List<ClosedLoop.Outcome>());
        foreach (var target in targets)
            await WarmUpAsync(target, callers, duration / 2, operation(target), progress, cancellation);
        for (var run = 0; run < runs; run++)
        {
            foreach (var target in targets)
            {
                var outcome = await RunUndisturbedAsync(target, callers, duration, operation(target), progress, cancellation);
                outcomes[target.Name].Add(outcome);
                progress($"{workload}, run {run + 1} of {runs}, {target.Name}: {outcome.OperationsPerSecond:F0}/s, p50 {outcome.P50Milliseconds:F2} ms, p99 "
                    + $"{outcome.P99Milliseconds:F2} ms, {outcome.CpuMicroseconds:F1} us CPU an operation");
            }
        }

        return [.. outcomes.SelectMany(system => ClosedLoop.RowsOf(Name, workload, system.Key, system.Value))];
    }

    // Until the servers' CPU an operation falls no more: on a slow machine the runtime compiles the paths of the first workload for several seconds, at several
    // times their cost.
    private static async Task WarmUpAsync(
        ClusterTarget target, int callers, TimeSpan duration, Func<int, int, Task> operation, Action<string> progress, CancellationToken cancellation)
    {
        var before = double.PositiveInfinity;
        for (var run = 0; run < WarmUpsMax; run++)
        {
            var cpu = (await RunUndisturbedAsync(target, callers, duration, operation, progress, cancellation)).CpuMicroseconds;
            if (cpu > before * SettledPart)
                return;
            before = cpu;
        }
    }

    // A unary client talks to one node. If the leadership moves during the run, as on an overloaded machine, the run is repeated.
    private static async Task<ClosedLoop.Outcome> RunUndisturbedAsync(
        ClusterTarget target, int callers, TimeSpan duration, Func<int, int, Task> operation, Action<string> progress, CancellationToken cancellation)
    {
        for (var attempt = 1; ; attempt++)
        {
            try
            {
                return await ClosedLoop.RunAsync(callers, duration, target.Servers, operation, cancellation);
            }
            catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.Unknown && attempt < AttemptsMax)
            {
                progress($"{target.Name}: {e.Status.Detail} The run is repeated.");
                await target.FindLeader(cancellation);
            }
        }
    }

    private static ClusterTarget Unary(LeaderChannels channels, KvServers servers, KeySpace keys) => new(Ours, servers.Processes,
        async (caller, number) => await channels.ClientOf(caller).PutAsync(new V1.PutRequest { Key = keys.Key(number), Value = keys.Value(number) }),
        async (caller, number) => Found((await channels.ClientOf(caller).GetAsync(new GetRequest { Key = keys.Key(number) })).Found),
        channels.FollowAsync);

    private static Func<int, int, Task> QuorumGet(LeaderChannels channels, KeySpace keys) => async (caller, number) =>
        Found((await channels.ClientOf(caller).GetAsync(new GetRequest { Key = keys.Key(number), Read = new ReadOptions { Mode = ReadMode.Quorum } })).Found);

    // On the same disk, with etcd's own durability defaults. Null if its programs are not available.
    private static async Task<EtcdProcesses?> StartEtcdAsync(Action<string> progress)
    {
        if (EtcdProcesses.AreAvailable)
            return await EtcdProcesses.StartAsync(
                EtcdNodes, arguments: [EtcdProcesses.WithSyncs, "--quota-backend-bytes", (8L << 30).ToString(CultureInfo.InvariantCulture)]);
        progress("etcd: not on PATH and not beside the repository; left out");
        return null;
    }

    // A member of etcd that does not lead forwards writes, so there is no leader to find again.
    private static ClusterTarget Etcd(Channels channels, EtcdProcesses servers, KeySpace keys)
    {
        var clients = channels.Clients(channel => new KV.KVClient(channel));
        return new ClusterTarget(Peer, servers.ProcessIds,
            async (caller, number) => await clients[caller % clients.Length].PutAsync(
                new Etcdserverpb.PutRequest { Key = keys.Key(number), Value = keys.Value(number) }),
            async (caller, number) => Found((await clients[caller % clients.Length].RangeAsync(new RangeRequest { Key = keys.Key(number) })).Count == 1),
            _ => Task.CompletedTask);
    }

    private static ClusterTarget ByLibrary(string name, KvClient client, KvServers servers, KeySpace keys) => new(name, servers.Processes,
        async (_, number) => await client.PutAsync(keys.Key(number).Memory, keys.Value(number).Memory),
        async (_, number) => Found((await client.GetAsync(keys.Key(number).Memory)).Found),
        _ => Task.CompletedTask);

    // Every key that a get may request exists. Ours are put by the library, which continues when a leader changes.
    private static Task FillAsync(ClusterTarget target, KeySpace keys) =>
        Parallel.ForEachAsync(
            Enumerable.Range(0, keys.Keys.Count), new ParallelOptions { MaxDegreeOfParallelism = 128 },
            async (number, _) => await target.Put(number % 128, number));

    private static void Found(bool found)
    {
        if (!found)
            throw new InvalidOperationException("A key that was put is not found: the numbers would be of something else.");
    }
}
