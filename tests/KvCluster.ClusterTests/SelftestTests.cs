using System.Diagnostics;
using System.Globalization;
using System.Text;
using System.Text.Json;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests;

/// <summary>
/// `kv selftest` against real processes: directly, through the router, and while leaders are killed at random. It leaves everything as it was.
/// </summary>
[Trait("Turn", "4")]
public sealed class SelftestTests
{
    private static readonly string[] ThreeShards = ["--processes", "--split-at", "files/,packages/"];

    /// <summary>Keys of somebody else, also beside those of the suite and beside borders of shards.</summary>
    private static readonly string[] Others =
        ["a", "files", "files.", "files/", "files/a", "packages", "packages/!", "packages/a", "selftest", "selftest/", "selftest/other", "selftest0"];

    /// <summary>It makes many calls and waits, each with a limit of its own.</summary>
    private static readonly TimeSpan Limit = TimeSpan.FromMinutes(10);

    [Fact]
    public async Task Selftest_DirectlyAndThroughTheRouter_PassesAndLeavesOtherKeysAsTheyAre()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), ThreeShards);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.RouterAddress], Timeout = Eventually.Limit });
        foreach (var key in Others)
            await client.PutAsync(key, "of somebody else");
        var before = await AllAsync(client);

        var direct = await RunAsync(cluster, "--seconds", "4");
        Assert.True(direct.ExitCode == 0, direct.Told);
        Assert.Contains("2 borders of shards", direct.Told, StringComparison.Ordinal);
        var routed = await RunAsync(cluster, "--seconds", "4", "--gateway", "--output", "json", "--seed", "7");
        Assert.True(routed.ExitCode == 0, routed.Told);
        using var document = JsonDocument.Parse(routed.Told);
        Assert.Equal(7, document.RootElement.GetProperty("seed").GetInt32());
        Assert.Equal(0, document.RootElement.GetProperty("failed").GetInt32());
        Assert.Equal(document.RootElement.GetProperty("checks").GetArrayLength(), document.RootElement.GetProperty("passed").GetInt32());

        Assert.Equal(before, await AllAsync(client));
    }

    [Fact]
    public async Task Selftest_WhileLeadersAreKilledAtRandom_Passes()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), ThreeShards);
        using var channel = GrpcChannel.ForAddress(cluster.RouterAddress);
        var status = new V1.Cluster.ClusterClient(channel.Calls());
        // A node may take long to run again on a busy machine, and without a second kill in a run nothing was shown.
        await Eventually.TrueAsync(async () => await PassesWhileLeadersAreKilledAsync(cluster, status) > 1, "leaders were killed while it ran", Limit);

        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.RouterAddress], Timeout = Eventually.Limit });
        Assert.Empty(await AllAsync(client));
        await Eventually.TrueAsync(
            async () => await RouterStatus.StatusAsync(status, digest: true) is { } now && AreEqual(now), "three equal replicas of each shard");
    }

    // Returns how many were killed.
    private static async Task<int> PassesWhileLeadersAreKilledAsync(LauncherProcess cluster, V1.Cluster.ClusterClient status)
    {
        using var ended = new CancellationTokenSource();
        var seed = Random.Shared.Next();
        var killing = KillLeadersUntilAsync(cluster, status, new Random(seed), ended.Token);
        var run = await RunAsync(cluster, "--seconds", "16", "--seed", seed.ToString(CultureInfo.InvariantCulture));
        await ended.CancelAsync();
        var kills = await killing;
        Assert.True(run.ExitCode == 0, $"seed {seed}, {kills} kills: {run.Told}");
        return kills;
    }

    // The launcher starts each node again. The next leader dies when all answer again, however long that takes: two at a time would leave no majority.
    private static async Task<int> KillLeadersUntilAsync(LauncherProcess cluster, V1.Cluster.ClusterClient status, Random random, CancellationToken ended)
    {
        var kills = 0;
        while (!ended.IsCancellationRequested)
        {
            uint[] leaders = await RouterStatus.StatusAsync(status) is { } now && now.Nodes.All(static node => node.Error.Length == 0)
                ? [.. now.Nodes.Where(static node => node.Replicas.Any(static replica => replica.Role == Role.Leader)).Select(static node => node.Node)]
                : [];
            if (leaders.Length > 0)
            {
                var name = $"node-{leaders[random.Next(leaders.Length)]}";
                var killed = cluster.PidOf(name);
                if (LauncherProcess.IsAlive(killed))
                {
                    Process.GetProcessById(killed).Kill();
                    kills++;
                }
                await Eventually.TrueAsync(() => cluster.PidOf(name) is var pid && pid != killed && LauncherProcess.IsAlive(pid), "the node runs again");
            }
            await Task.Delay(random.Next(500, 3_000), ended).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
        return kills;
    }

    private static bool AreEqual(V1.GetStatusResponse status) =>
        status.Nodes.All(static node => node.Error.Length == 0 && node.Replicas.Count == 3)
        && status.Nodes.SelectMany(static node => node.Replicas).GroupBy(static replica => replica.Route.Shard)
            .All(static shard => shard.Select(static replica => (replica.DigestEtag, replica.Digest)).Distinct().Count() == 1);

    private static async Task<(int ExitCode, string Told)> RunAsync(LauncherProcess cluster, params string[] arguments)
    {
        using var process = Process.Start(new ProcessStartInfo(
            Tools.Built("kv", "KvCluster.Cli"), ["selftest", "--endpoint", cluster.RouterAddress, .. arguments])
        {
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        try
        {
            var (output, error) = (process.StandardOutput.ReadToEndAsync(), process.StandardError.ReadToEndAsync());
            await process.WaitForExitAsync().WaitAsync(Limit);
            return (process.ExitCode, await output + await error);
        }
        finally
        {
            if (!process.HasExited)
                process.Kill();
        }
    }

    private static async Task<List<(string Key, KvCluster.Etag Etag)>> AllAsync(KvClient client) =>
        await client.ScanAsync(new KvScan()).Select(static entry => (Encoding.UTF8.GetString(entry.Key.Span), entry.Etag)).ToListAsync();
}
