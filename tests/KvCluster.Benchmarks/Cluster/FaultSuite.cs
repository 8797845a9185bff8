using System.Diagnostics;
using Etcdserverpb;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// The cost of faults: the time until the next acknowledged write after a leader was killed or stopped, beside a three-node etcd in the same run; the time
/// until a dead node's hundred shards have new leaders; the delay of a writer by a transfer; the speed of a follower that catches up; and how much slower
/// puts become with a follower dead, slow or cut off, with a slow disk under one node, without etcd, and with three replicas instead of one.
/// </summary>
internal static class FaultSuite
{
    public const string Name = "faults";
    public const string Ours = "kvcluster";
    public const int Nodes = 3;

    private const int ManyShards = 300;
    private const int IdleWindowsMax = 18;

    private const int CalmWindows = 3;

    private static readonly TimeSpan IdleWindow = TimeSpan.FromSeconds(10);

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        if (!EtcdProcesses.AreAvailable)
        {
            progress("etcd, the coordinator of these clusters: not on PATH and not beside the repository; all left out");
            return [];
        }

        var rows = new List<BenchmarkRow>();
        rows.AddRange(await FailoversAsync(quick ? 3 : 20, progress, cancellation));
        rows.AddRange(await ManyShardsAsync(quick ? 1 : 3, progress, cancellation));
        rows.AddRange(await TransferMeasure.RunAsync(quick ? 5 : 20, progress, cancellation));
        rows.AddRange(await CatchUpMeasure.RunAsync(quick ? 1 : 3, progress, cancellation));
        rows.AddRange(await MissingPartMeasure.RunAsync(
            quick ? 1 : 5, TimeSpan.FromSeconds(quick ? 2 : 4), quick ? TimeSpan.Zero : TimeSpan.FromMinutes(5), progress, cancellation));
        rows.AddRange(await RunSlowDiskAsync(quick, progress, cancellation));
        return rows;
    }

    /// <summary>Only its last part.</summary>
    public static Task<IReadOnlyList<BenchmarkRow>> RunSlowDiskAsync(bool quick, Action<string> progress, CancellationToken cancellation) =>
        SlowDiskMeasure.RunAsync(quick ? 1 : 5, TimeSpan.FromSeconds(quick ? 2 : 4), turns: quick ? 1 : 20, progress, cancellation);

    /// <summary>A leader that is killed closes its connections. One that is stopped keeps them, and its callers must notice by themselves.</summary>
    private static async Task<List<BenchmarkRow>> FailoversAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        await using var servers = await NodeServers.StartAsync(Nodes, shards: 1, cancellation);
        await using var peer = await EtcdProcesses.StartAsync(Nodes);
        await using var client = new KvClient(new KvClientOptions { Endpoints = servers.Endpoints });
        var rows = new List<BenchmarkRow>();
        foreach (var isStopped in (bool[])[false, true])
        {
            var workload = $"{(isStopped ? "SIGSTOP" : "kill -9")} of the leader to the next acknowledged put";
            var (ours, theirs) = (new List<double>(), new List<double>());
            for (var run = 0; run < runs; run++)
            {
                ours.Add(await FailoverAsync(isStopped));
                theirs.Add(await FailoverOfPeerAsync(peer, isStopped));
                progress($"{workload}, run {run + 1} of {runs}: {ours[^1]:F0} ms, etcd {theirs[^1]:F0} ms");
            }
            rows.AddRange([BenchmarkRow.Of(Name, workload, Ours, "ms", ours), BenchmarkRow.Of(Name, workload, "etcd", "ms", theirs)]);
        }
        return rows;

        async Task<double> FailoverAsync(bool isStopped)
        {
            await client.PutAsync("key", "before", cancellationToken: cancellation);
            var leader = (await servers.AllLedAsync(except: 0, cancellation)).MaxBy(node => node.Value).Key;
            var process = servers.Processes[leader - 1];
            await StrikeAsync(isStopped, process, () => servers.KillAsync(leader));
            var took = await UntilDoneAsync(async () =>
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
            });
            Restore(isStopped, process, () => servers.Start(leader));
            await servers.AllLedAsync(except: 0, cancellation);
            return took;
        }
    }

    // As its own client does: one member after the other, with a limit for each attempt.
    private static async Task<double> FailoverOfPeerAsync(EtcdProcesses peer, bool isStopped)
    {
        var leader = await peer.LeaderAsync();
        var channels = peer.Endpoints.Where((_, member) => member != leader).Select(GrpcChannel.ForAddress).ToArray();
        var request = new PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("key"), Value = Google.Protobuf.ByteString.CopyFromUtf8("value") };
        var process = peer.ProcessIds[leader];
        await StrikeAsync(isStopped, process, () => peer.KillAsync(leader));
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
        Restore(isStopped, process, () => peer.Start(leader));
        return took;
    }

    private static Task StrikeAsync(bool isStopped, int process, Func<Task> kill)
    {
        if (!isStopped)
            return kill();
        Signals.Pause(process);
        return Task.CompletedTask;
    }

    private static void Restore(bool isStopped, int process, Action start)
    {
        if (isStopped)
            Signals.Resume(process);
        else
            start();
    }

    private static async Task<List<BenchmarkRow>> ManyShardsAsync(int runs, Action<string> progress, CancellationToken cancellation)
    {
        var network = new Network();
        await using var servers = await NodeServers.StartAsync(Nodes, ManyShards, cancellation, network);
        var (idle, frames) = (new List<double>(), new List<double>());
        var took = new List<double>();
        for (var run = 0; run < runs; run++)
        {
            var (cpu, carried) = await IdleAsync(servers, network, cancellation);
            idle.Add(cpu);
            frames.Add(carried);
            var (node, led) = (await servers.AllLedAsync(except: 0, cancellation)).MaxBy(entry => entry.Value);
            var started = Stopwatch.GetTimestamp();
            await servers.KillAsync(node);
            await servers.AllLedAsync(except: node, cancellation);
            took.Add(Stopwatch.GetElapsedTime(started).TotalSeconds);
            progress($"{ManyShards} shards, run {run + 1} of {runs}: idle {idle[^1]:F1} % of a core, {frames[^1]:F0} frames/s; "
                + $"{led} leaderships of a dead node taken over in {took[^1]:F2} s");
            servers.Start(node);
            await servers.AllLedAsync(except: 0, cancellation);
        }

        return
        [
            BenchmarkRow.Of(Name, $"idle cluster of {ManyShards} shards, all nodes", Ours, "% of a core", idle),
            BenchmarkRow.Of(Name, $"idle cluster of {ManyShards} shards, between nodes", Ours, "frames/s", frames),
            BenchmarkRow.Of(Name, "node with 100 leaderships dies: all led again", Ours, "s", took),
        ];
    }

    // Percent of a core and frames per second, over the calmest window. Windows are measured until three in a row are not much calmer. A new cluster
    // first checks its replicas, and for two minutes it sometimes recompiles code.
    private static async Task<(double Cpu, double Frames)> IdleAsync(NodeServers servers, Network network, CancellationToken cancellation)
    {
        var calmest = (Cpu: double.MaxValue, Frames: 0.0);
        var since = 0;
        for (var window = 0; window < IdleWindowsMax && since < CalmWindows; window++)
        {
            var (before, framesBefore) = (ServerCpu.MicrosecondsOf(servers.Processes), network.Frames);
            var started = Stopwatch.GetTimestamp();
            await Task.Delay(IdleWindow, cancellation);
            var elapsed = Stopwatch.GetElapsedTime(started);
            var cpu = (ServerCpu.MicrosecondsOf(servers.Processes) - before) / elapsed.TotalMicroseconds * 100;
            since = cpu < calmest.Cpu * 0.9 ? 0 : since + 1;
            if (cpu < calmest.Cpu)
                calmest = (cpu, (network.Frames - framesBefore) / elapsed.TotalSeconds);
        }
        return calmest;
    }

    // Milliseconds until an attempt succeeds. Attempts follow each other with a short pause.
    private static async Task<double> UntilDoneAsync(Func<Task<bool>> attempt)
    {
        var started = Stopwatch.GetTimestamp();
        while (!await attempt())
            await Task.Delay(5);
        return Stopwatch.GetElapsedTime(started).TotalMilliseconds;
    }
}
