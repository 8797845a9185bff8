using System.Diagnostics;
using Etcdserverpb;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// What faults cost: how long until the next acknowledged write after kill -9 of a leader, beside a three-node etcd in the same run; until a node's
/// hundred shards are led again; and how much slower puts become without a follower, without etcd, and with three replicas instead of one.
/// </summary>
internal static class FaultSuite
{
    private const string Name = "faults";
    private const string Ours = "kvcluster";
    private const int Nodes = 3;
    private const int ManyShards = 300;
    private const int Callers = 256;

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (Tools.Find("etcd") is null || Tools.Find("etcdctl") is null)
        {
            progress("etcd, the coordinator of these clusters: not on PATH and not beside the repository; all left out");
            return [];
        }

        var rows = new List<BenchmarkRow>();
        rows.AddRange(await FailoversAsync(quick ? 3 : 20, progress, cancellation));
        rows.AddRange(await ManyShardsAsync(quick ? 1 : 3, progress, cancellation));
        rows.AddRange(await WithoutAPartAsync(quick ? 1 : 5, quick ? 2 : 4, progress, cancellation));
        return rows;
    }

    private static async Task<List<BenchmarkRow>> FailoversAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(Nodes, shards: 1, cancellation);
        await using var peer = await EtcdMembers.StartAsync(Nodes);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var (ours, theirs) = (new List<double>(), new List<double>());
        for (var run = 0; run < runs; run++)
        {
            await client.PutAsync("key", "before", cancellationToken: cancellation);
            var leader = (await servers.AllLedAsync(except: 0, cancellation)).MaxBy(node => node.Value).Key;
            await servers.KillAsync(leader);
            ours.Add(await UntilDoneAsync(async () =>
            {
                try
                {
                    await client.PutAsync("key", "after", cancellationToken: cancellation);
                    return true;
                }
                catch (KvException)
                {
                    return false;
                }
            }));
            servers.Start(leader);
            await servers.AllLedAsync(except: 0, cancellation);
            theirs.Add(await FailoverOfPeerAsync(peer));
            progress($"kill -9 of the leader, run {run + 1} of {runs}: {ours[^1]:F0} ms, etcd {theirs[^1]:F0} ms");
        }

        const string workload = "kill -9 of the leader to the next acknowledged put";
        return [BenchmarkRow.Of(Name, workload, Ours, "ms", ours), BenchmarkRow.Of(Name, workload, "etcd", "ms", theirs)];
    }

    // As its own client does: the other members in turn, each attempt bounded.
    private static async Task<double> FailoverOfPeerAsync(EtcdMembers peer)
    {
        var leader = await peer.LeaderAsync();
        var channels = peer.Endpoints.Where((_, member) => member != leader).Select(GrpcChannel.ForAddress).ToArray();
        var request = new PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("key"), Value = Google.Protobuf.ByteString.CopyFromUtf8("value") };
        await peer.KillAsync(leader);
        var attempt = 0;
        var took = await UntilDoneAsync(async () =>
        {
            try
            {
                await new KV.KVClient(channels[attempt++ % channels.Length]).PutAsync(request, deadline: DateTime.UtcNow.AddSeconds(0.5));
                return true;
            }
            catch (RpcException)
            {
                return false;
            }
        });
        foreach (var channel in channels)
            channel.Dispose();
        peer.Start(leader);
        return took;
    }

    private static async Task<List<BenchmarkRow>> ManyShardsAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(Nodes, ManyShards, cancellation);
        var idle = new List<double>();
        var took = new List<double>();
        for (var run = 0; run < runs; run++)
        {
            var before = ServerCpu.MicrosecondsOf(servers.Processes);
            var started = Stopwatch.GetTimestamp();
            await Task.Delay(TimeSpan.FromSeconds(10), cancellation);
            idle.Add((ServerCpu.MicrosecondsOf(servers.Processes) - before) / Stopwatch.GetElapsedTime(started).TotalMicroseconds * 100);
            var (node, led) = (await servers.AllLedAsync(except: 0, cancellation)).MaxBy(entry => entry.Value);
            started = Stopwatch.GetTimestamp();
            await servers.KillAsync(node);
            await servers.AllLedAsync(except: node, cancellation);
            took.Add(Stopwatch.GetElapsedTime(started).TotalSeconds);
            progress($"{ManyShards} shards, run {run + 1} of {runs}: idle {idle[^1]:F1} % of a core; {led} leaderships of a dead node taken over in {took[^1]:F2} s");
            servers.Start(node);
            await servers.AllLedAsync(except: 0, cancellation);
        }

        return
        [
            BenchmarkRow.Of(Name, $"idle cluster of {ManyShards} shards, all nodes", Ours, "% of a core", idle),
            BenchmarkRow.Of(Name, "node with 100 leaderships dies: all led again", Ours, "s", took),
        ];
    }

    // Windows with and without alternate, so that a machine that slows down slows both.
    private static async Task<List<BenchmarkRow>> WithoutAPartAsync(int windows, int seconds, Action<string> progress, CancellationToken cancellation)
    {
        var keys = new KeySpace(seed: 11);
        await using var servers = await NodeServers.StartAsync(Nodes, shards: 1, cancellation);
        await using var alone = await NodeServers.StartAsync(nodes: 1, shards: 1, cancellation);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        await using var clientAlone = new KvClient(new KvClientOptions { Endpoints = alone.Endpoints });
        var (follower, etcd, replicas) = (new List<double>(), new List<double>(), new List<double>());
        await PutsAsync(client, servers);
        await PutsAsync(clientAlone, alone);
        for (var window = 0; window < windows; window++)
        {
            var with = await PutsAsync(client, servers);
            var dead = (await servers.AllLedAsync(except: 0, cancellation)).First(node => node.Value == 0).Key;
            await servers.KillAsync(dead);
            follower.Add(await PutsAsync(client, servers) / with);
            servers.Start(dead);
            await servers.AllLedAsync(except: 0, cancellation);
            with = await PutsAsync(client, servers);
            await servers.Etcd.KillAsync(0);
            etcd.Add(await PutsAsync(client, servers) / with);
            await servers.Etcd.RestartAsync(static () => { });
            replicas.Add(await PutsAsync(client, servers) / await PutsAsync(clientAlone, alone));
            progress($"puts/s, window {window + 1} of {windows}: without a follower {follower[^1]:F2}, without etcd {etcd[^1]:F2}, 3 replicas to 1 {replicas[^1]:F2}");
        }

        return
        [
            BenchmarkRow.Of(Name, $"put, {Callers} callers: follower dead to alive", Ours, "ratio", follower),
            BenchmarkRow.Of(Name, $"put, {Callers} callers: etcd gone to there", Ours, "ratio", etcd),
            BenchmarkRow.Of(Name, $"put, {Callers} callers: 3 replicas to 1", Ours, "ratio", replicas),
        ];

        async Task<double> PutsAsync(KvClient putter, NodeServers at) => (await ClosedLoop.RunAsync(
            Callers, TimeSpan.FromSeconds(seconds), at.Processes, async (_, number) => await putter.PutAsync(keys.Key(number).Memory, keys.Value(number).Memory), cancellation)).OperationsPerSecond;
    }

    // Milliseconds until an attempt succeeds; one after the other, with a short pause.
    private static async Task<double> UntilDoneAsync(Func<Task<bool>> attempt)
    {
        var started = Stopwatch.GetTimestamp();
        while (!await attempt())
            await Task.Delay(5);
        return Stopwatch.GetElapsedTime(started).TotalMilliseconds;
    }
}
