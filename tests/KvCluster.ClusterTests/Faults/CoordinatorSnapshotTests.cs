using System.Diagnostics;
using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Admin.V1;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// F11 and F41: etcd's data was saved, replicas have moved since, and the old data is restored. `kv admin coordinator recover` raises it to what the nodes
/// know. Five client processes make calls meanwhile, and their histories must be linearizable.
/// </summary>
[Trait("Turn", "7")]
public sealed class CoordinatorSnapshotTests
{
    private const int Some = 100;
    private const int Nodes = 4;
    private const int Shards = 4;
    private const int Unavailable = 3;
    private const string FourShards = "h,p,w";
    private const string SnapshotKey = "/kvcluster/local/snapshot";

    /// <summary>As deploy/OPERATIONS.md describes it, with the file that `kv-node coordinator-snapshot` made.</summary>
    [ToolTheory("etcd", "etcdctl", "etcdutl", "lincheck")]
    [InlineData(1, false)]
    [InlineData(3, false)]
    [InlineData(3, true)]
    public async Task F41_SnapshotRestoredAfterMovesOfReplicas_IsRaisedAndNothingIsLost(int members, bool isRevisionRaised)
    {
        await using var cluster = await FaultCluster.StartAsync(Nodes, FourShards, members);
        var (folder, snapshot) = (Path.Combine(cluster.Folder, "snapshots"), "");
        await RestoreOldAsync(
            cluster,
            async () =>
            {
                await SnapshotAsync(cluster, folder);
                snapshot = Assert.Single(Directory.GetFiles(folder));
            },
            () => cluster.Etcd.RestoreAsync(snapshot, isRevisionRaised),
            isRevisionRaised,
            $"{nameof(F41_SnapshotRestoredAfterMovesOfReplicas_IsRaisedAndNothingIsLost)}-{members}-{isRevisionRaised}");
    }

    /// <summary>The same with a copy of the directory of a single etcd that was stopped.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F11_CopyOfTheDirectoryRestoredAfterMovesOfReplicas_IsRaisedAndNothingIsLost()
    {
        await using var cluster = await FaultCluster.StartAsync(Nodes, FourShards);
        var copy = Path.Combine(cluster.Folder, "copy");
        await RestoreOldAsync(
            cluster,
            () => cluster.Etcd.RestartAsync(() => EtcdProcesses.CopyFolder(cluster.Etcd.DataOf(0), copy)),
            () => cluster.Etcd.RestartAsync(() =>
            {
                Directory.Delete(cluster.Etcd.DataOf(0), recursive: true);
                EtcdProcesses.CopyFolder(copy, cluster.Etcd.DataOf(0));
            }),
            isRevisionRaised: false);
    }

    /// <summary>Each node tells how old the newest snapshot is. Of an etcd that has lost its data none is taken, and the good ones stay.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Snapshots_TakenByTheCommand_AreKnownToEveryNodeAndOutliveTheLossOfTheData()
    {
        await using var cluster = await FaultCluster.StartAsync(etcdMembers: 1, secure: true);
        var folder = Path.Combine(cluster.Folder, "snapshots");
        var before = DateTimeOffset.UtcNow.ToUnixTimeSeconds();
        await SnapshotAsync(cluster, folder);
        var told = long.Parse(await cluster.Etcd.ControlAsync("get", "--print-value-only", SnapshotKey), CultureInfo.InvariantCulture);
        Assert.InRange(told, before, DateTimeOffset.UtcNow.ToUnixTimeSeconds());
        foreach (var node in cluster.Nodes)
            await Eventually.TrueAsync(
                async () => (await cluster.StatusOfAsync(node.Node))?.CoordinatorSnapshotUnixUs == told * 1_000_000, $"node {node.Node} knows of the snapshot");

        await cluster.Etcd.ControlAsync("del", "--prefix", "/kvcluster/");
        var (exitCode, _, error) = await RunSnapshotAsync(cluster, folder);
        Assert.True(exitCode == Unavailable, error);
        Assert.Contains("has no record /kvcluster/local/cluster", error, StringComparison.Ordinal);
        Assert.Single(Directory.GetFiles(folder));
    }

    /// <summary>A Job of Kubernetes whose pod ends with 0 has succeeded, and this one had saved nothing.</summary>
    [Fact]
    public async Task Snapshot_StoppedWhileItWaitsForTheCoordinator_EndsWithAFailure()
    {
        using var folder = new TemporaryDirectory();
        string[] arguments = ["coordinator-snapshot", "--coordinator", "etcd=http://127.0.0.1:1", "--snapshot-dir", Path.Combine(folder.Path, "snapshots")];
        using var process = Process.Start(
            new ProcessStartInfo(NodeProcess.Program, arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        // By its second attempt it certainly handles signals.
        for (var failures = 0; failures < 2;)
        {
            var line = await process.StandardOutput.ReadLineAsync().WaitAsync(Eventually.Limit);
            Assert.NotNull(line);
            if (line.Contains("does not answer", StringComparison.Ordinal))
                failures++;
        }
        Signals.End(process.Id);
        var error = await process.StandardError.ReadToEndAsync().WaitAsync(Eventually.Limit);
        await process.WaitForExitAsync().WaitAsync(Eventually.Limit);
        Assert.Equal((Unavailable, "kv-node: Stopped before the snapshot was complete; no file was added. Run this again."), (process.ExitCode, error.Trim()));
    }

    // Saves etcd, moves a replica to the node that has none, transfers, restores what was saved, and recovers.
    private static async Task RestoreOldAsync(
        FaultCluster cluster, Func<Task> save, Func<Task> restore, bool isRevisionRaised, [CallerMemberName] string test = "")
    {
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        await cluster.UntilLevelAsync();
        await cluster.PausePlacementAsync();
        await save();
        await histories.MoreChangesAsync(Some);

        var saved = await cluster.RecordAsync();
        var spare = Enumerable.Range(1, Nodes).Except(saved.Replicas.Select(static replica => (int)replica.Node)).Single();
        var leader = await cluster.LeaderAsync();
        var from = saved.Replicas.Select(static replica => (int)replica.Node).First(node => node != leader);
        await Eventually.TrueAsync(
            async () =>
                (await KvAsync("admin", "replace", "0", "--from", Text(from), "--to", Text(spare), "--endpoint", cluster.DirectEndpoints[0])).ExitCode == 0
                    || (await cluster.RecordAsync()).Replicas.Any(replica => replica.Node == spare && !replica.Learner),
            "the replica moves");
        await cluster.TransferAsync();
        await histories.MoreChangesAsync(Some);
        var newest = await cluster.RecordAsync();
        Assert.NotEqual(saved.Replicas, newest.Replicas);

        var since = cluster.LogLengths();
        await restore();
        // Without a step back of the revision nodes see no other store, only records that are older than theirs.
        if (!isRevisionRaised)
        {
            foreach (var node in cluster.Nodes)
                await cluster.UntilSaidAsync(node.Node, "ALARM", since[node.Node]);
        }
        await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);

        await FaultCluster.UntilRecoveredAsync(cluster.DirectEndpoints[0]);
        foreach (var node in cluster.Nodes)
            await cluster.UntilSaidAsync(node.Node, "(recovery 1)", since[node.Node]);
        await histories.MoreChangesAsync(Some);
        var after = await cluster.RecordAsync();
        Assert.Equal((newest.Lineage, 1UL), (after.Lineage, after.Recovery));
        Assert.Equal(newest.Replicas.Select(static replica => replica.Replica), after.Replicas.Select(static replica => replica.Replica));
        // What only etcd has is what the snapshot had.
        Assert.True((await FaultCluster.AnsweredAsync(() => cluster.AdminOf(1).PlaceAsync(new PlaceRequest()))).Paused);

        // Elections are possible again, in every shard.
        var dead = await cluster.LeaderAsync();
        await cluster.Node(dead).KillAsync();
        await cluster.UntilLedWithoutAsync(dead, Shards);
        await histories.MoreChangesAsync(Some);
        cluster.Node(dead).Start();
        await cluster.UntilEveryReplicaWorksAsync();
        await histories.MoreChangesAsync(Some);
        await histories.CheckAsync(test);
        await cluster.UntilEqualAsync();
    }

    private static async Task SnapshotAsync(FaultCluster cluster, string folder)
    {
        var (exitCode, output, error) = await RunSnapshotAsync(cluster, folder);
        Assert.True(exitCode == 0, $"{output}\n{error}");
    }

    private static Task<(int ExitCode, string Output, string Error)> RunSnapshotAsync(FaultCluster cluster, string folder)
    {
        string[] security = cluster.Etcd.Certificates is { } certificates
            ? ["--coordinator-ca", certificates.AuthorityFile, "--coordinator-cert", certificates.ClientFile, "--coordinator-key", certificates.ClientKeyFile]
            : [];
        return Tools.RunAsync(
            NodeProcess.Program,
            ["coordinator-snapshot", "--coordinator", "etcd=" + string.Join(',', cluster.Etcd.Endpoints), .. security, "--snapshot-dir", folder]);
    }

    private static Task<(int ExitCode, string Output, string Error)> KvAsync(params string[] arguments) =>
        Tools.RunAsync(Tools.Built("kv", "KvCluster.Cli"), arguments);

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
