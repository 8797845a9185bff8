using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Node.Hosting;
using KvCluster.Processes;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Storage.Files;
using KvCluster.Tests.Cli;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>How nodes start when their surroundings are not ready or wrong, and what they report.</summary>
public sealed class NodeStartTests : IDisposable
{
    private readonly TemporaryDirectory _folder = new();

    public void Dispose() => _folder.Dispose();

    [Fact]
    public async Task Nodes_WithEmptyDirectoriesAndNoCluster_CreateOneAndBecomeReady()
    {
        await using var coordinator = OpenCoordinator();
        var healths = Enumerable.Range(0, 3).Select(_ => new ProcessHealth()).ToArray();
        var nodes = await Task.WhenAll(healths.Select((health, index) => StartAsync((uint)index + 1, coordinator, health)));
        try
        {
            foreach (var health in healths)
                await Eventually.TrueAsync(() => health.NotReady is null, "every node is ready");
            var records = await coordinator.ListAsync(new CoordinatorKeys("local").Shards, CancellationToken.None);
            Assert.Equal(2, records.Entries.Count);
        }
        finally
        {
            await Task.WhenAll(nodes.Select(node => node.StopAsync()));
        }
        Assert.All(healths, health => Assert.Equal("it is stopping", health.NotReady));
    }

    [Fact]
    public async Task Node_OfAClusterWhoseRecordIsGone_WaitsAndCreatesNone()
    {
        await using (var before = OpenCoordinator())
            await (await StartAsync(1, before, new ProcessHealth(), nodes: [1])).StopAsync();
        Directory.Delete(Path.Combine(_folder.Path, "coordinator"), recursive: true);
        await using var empty = OpenCoordinator();
        var health = new ProcessHealth();
        using var stop = new CancellationTokenSource();
        var starting = StartAsync(1, empty, health, nodes: [1], stop.Token);
        await Eventually.TrueAsync(
            () => health.NotStarted?.Contains("belongs to a cluster", StringComparison.Ordinal) == true, "the node says what it waits for");
        Assert.Null(health.NotAlive);
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => starting);
        Assert.Null((await empty.GetAsync(new CoordinatorKeys("local").Cluster, CancellationToken.None)).Value);
    }

    /// <summary>One that had lost its disk created a second cluster while the others, which had the data of the first one, were down.</summary>
    [Fact]
    public async Task Nodes_WithEmptyDirectories_CreateAClusterOnlyOnceAllOfTheFirstOnesHaveStarted()
    {
        await using var coordinator = OpenCoordinator();
        var healths = Enumerable.Range(0, 3).Select(_ => new ProcessHealth()).ToArray();
        var starting = Enumerable.Range(0, 2).Select(index => StartAsync((uint)index + 1, coordinator, healths[index])).ToList();
        foreach (var health in healths.Take(2))
            await Eventually.TrueAsync(
                () => health.NotStarted?.Contains("these have not: 3. ", StringComparison.Ordinal) == true, "the node says for which it waits");
        await AssertHasNoRecordsAsync(coordinator);
        starting.Add(StartAsync(3, coordinator, healths[2]));
        var nodes = await Task.WhenAll(starting);
        try
        {
            foreach (var health in healths)
                await Eventually.TrueAsync(() => health.NotReady is null, "every node is ready");
            Assert.Empty((await coordinator.ListAsync(new CoordinatorKeys("local").Waiting, CancellationToken.None)).Entries);
        }
        finally
        {
            await Task.WhenAll(nodes.Select(node => node.StopAsync()));
        }
    }

    /// <summary>
    /// It created a second cluster in the etcd that had lost its data. It is the only first node by its own settings, so it need not wait for others.
    /// </summary>
    [Fact]
    public async Task Node_WithAnEmptyDirectoryBesideOneThatWaitsForARecovery_CreatesNoneAndJoinsLater()
    {
        var keys = new CoordinatorKeys("local");
        List<CoordinatorChange> records;
        await using (var before = OpenCoordinator())
        {
            await (await StartAsync(1, before, new ProcessHealth(), nodes: [1])).StopAsync();
            records = [.. (await before.ListAsync(keys.Root, CancellationToken.None)).Entries];
        }
        Directory.Delete(Path.Combine(_folder.Path, "coordinator"), recursive: true);
        // Its leases never end, so the notice of the node that waits remains however long the machine stalls.
        await using var empty = EmbeddedCoordinator.Open(Path.Combine(_folder.Path, "coordinator"), new ManualTime());
        var health = new ProcessHealth();
        var first = StartAsync(1, empty, new ProcessHealth(), nodes: [1]);
        var cluster = RecordText.Parse<ClusterRecord>(records.Single(record => record.Key == keys.Cluster).Value!).ClusterId;
        await Eventually.TrueAsync(
            async () => (await empty.GetAsync(keys.WaitingOf(new(1)), CancellationToken.None)).Value == cluster, "the node with the data says that it waits");
        var second = StartAsync(2, empty, health, nodes: [2]);
        await Eventually.TrueAsync(
            () => health.NotStarted?.Contains($": 1 (cluster {cluster}). ", StringComparison.Ordinal) == true, "the empty node says why it creates none");
        await AssertHasNoRecordsAsync(empty);

        // As a recovery does, the cluster's last.
        foreach (var record in records.OrderBy(record => record.Key == keys.Cluster))
            await empty.CompareAndSetAsync(record.Key, 0, record.Value, 0, CancellationToken.None);
        foreach (var node in await Task.WhenAll(first, second))
            await node.StopAsync();
        Assert.Empty((await empty.ListAsync(keys.Waiting, CancellationToken.None)).Entries);
    }

    [Fact]
    public async Task Node_WithoutACoordinator_IsAliveAndReportsWhatItWaitsFor()
    {
        await using var nobody = new EtcdCoordinator(new EtcdOptions { Endpoints = ["http://127.0.0.1:1"] }, NullLogger.Instance);
        var health = new ProcessHealth();
        using var stop = new CancellationTokenSource();
        var starting = StartAsync(1, nobody, health, stop: stop.Token);
        await Eventually.TrueAsync(
            () => health.NotStarted?.Contains("The coordinator at http://127.0.0.1:1 does not answer", StringComparison.Ordinal) == true,
            "the node says what it waits for");
        Assert.Null(health.NotAlive);
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => starting);
    }

    [ToolFact("etcd", "etcdctl")]
    public async Task Node_PasswordRefusedByEtcd_EndsWithTheReason()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await etcd.ControlAsync("user", "add", "root:root");
        await etcd.ControlAsync("user", "grant-role", "root", "root");
        await etcd.ControlAsync("auth", "enable");
        await using var wrong = new EtcdCoordinator(new EtcdOptions { Endpoints = etcd.Endpoints, User = "root", Password = "guessed" }, NullLogger.Instance);
        var denied = await Assert.ThrowsAsync<CoordinatorDeniedException>(() => StartAsync(1, wrong, new ProcessHealth()));
        Assert.Contains("refuses the user 'root'", denied.Message, StringComparison.Ordinal);
        await using var nobody = new EtcdCoordinator(new EtcdOptions { Endpoints = etcd.Endpoints }, NullLogger.Instance);
        denied = await Assert.ThrowsAsync<CoordinatorDeniedException>(() => StartAsync(1, nobody, new ProcessHealth()));
        Assert.Contains("refuses calls without a user", denied.Message, StringComparison.Ordinal);
    }

    [ToolTheory("bash")]
    [InlineData("$NODE health --admin http://127.0.0.1:9", 1, "no answer from http://127.0.0.1:9/health/ready", "")]
    [InlineData("$ROUTER health", 2, "", "kv-router: --admin: is missing")]
    [InlineData("KVCLUSTER_CLUSTER=c $NODE config show --node 1 --data d --listen http://127.0.0.1:1 --coordinator etcd=http://127.0.0.1:2 | grep '^cluster' | "
        + "tr -s ' '", 0, "cluster c KVCLUSTER_CLUSTER", "")]
    [InlineData(
        "$NODE run --node 0 --data '' --listne x", 2, "",
        "kv-node: Unrecognized command or argument '--listne', did you mean '--listen'? (--help lists the options)")]
    [InlineData("$NODE run --memory-buget-mib 5", 2, "", ", did you mean '--memory-budget-mib'? (--help lists the options)")]
    [InlineData("$ROUTER run --nodse=http://127.0.0.1:1", 2, "", ", did you mean '--nodes'? (--help lists the options)")]
    [InlineData("$NODE run --node 0 --data '' --listne x", 2, "", "kv-node: --node: '0' is not an id")]
    [InlineData("$NODE run --node 0 --data '' --listne x", 2, "", "kv-node: --data: names no directory")]
    [InlineData("$NODE run --node 0 --data '' --listne x", 2, "", "kv-node: --coordinator is missing")]
    public async Task Program_WithAMistake_PrintsItAndExits(string script, int expectedCode, string expectedOutput, string expectedError)
    {
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
        Assert.Equal(expectedCode, exitCode);
        Assert.Contains(expectedOutput, output, StringComparison.Ordinal);
        Assert.Contains(expectedError, error, StringComparison.Ordinal);
    }

    [Fact]
    public void Open_BelowAFile_ReportsAnUnusableDirectory()
    {
        var file = Path.Combine(_folder.Path, "file");
        File.WriteAllText(file, "");
        var failure = Assert.Throws<DirectoryNotUsableException>(() => NodeDirectory.Open(Path.Combine(file, "data"), LocalDisk.Instance));
        Assert.StartsWith($"The directory '{Path.Combine(file, "data")}' cannot be used: ", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Open_OfADirectoryInUse_IsNotADiskError()
    {
        var path = Path.Combine(_folder.Path, "data");
        var directory = NodeDirectory.Open(path, LocalDisk.Instance);
        Assert.Throws<DirectoryInUseException>(() => NodeDirectory.Open(path, LocalDisk.Instance));
        Assert.True(directory.DisposeAsync().IsCompletedSuccessfully);
    }

    [Fact]
    public void NotUsable_WithoutPermissionOrVolume_SaysWhatToDo()
    {
        Assert.Contains("chown", new DirectoryNotUsableException(_folder.Path, new UnauthorizedAccessException()).Message, StringComparison.Ordinal);
        const int readOnly = 30;
        Assert.Contains(
            "volume", new DirectoryNotUsableException(_folder.Path, new IOException("Read-only file system", readOnly)).Message, StringComparison.Ordinal);
        Assert.Contains(
            "volume",
            new DirectoryNotUsableException(
                _folder.Path,
                new StorageIoException("create directory", "x", "y", inner: new IOException("Read-only file system", readOnly))).Message,
            StringComparison.Ordinal);
    }

    private static async Task AssertHasNoRecordsAsync(EmbeddedCoordinator coordinator)
    {
        var keys = new CoordinatorKeys("local");
        var list = await coordinator.ListAsync(keys.Root, CancellationToken.None);
        Assert.All(list.Entries, entry => Assert.StartsWith(keys.Waiting, entry.Key, StringComparison.Ordinal));
    }

    private EmbeddedCoordinator OpenCoordinator() => EmbeddedCoordinator.Open(Path.Combine(_folder.Path, "coordinator"), TimeProvider.System);

    private Task<NodeHost> StartAsync(uint node, ICoordinator coordinator, ProcessHealth health, uint[]? nodes = null, CancellationToken stop = default) =>
        NodeHost.StartAsync(
            new NodeOptions
            {
                Node = new(node),
                DataDirectory = Path.Combine(_folder.Path, $"node-{node}"),
                Listen = "http://127.0.0.1:0",
                DrainTimeMax = Eventually.Limit,
                StopTimeMax = Eventually.Limit,
                Bootstrap = new NewCluster([.. (nodes ?? [1, 2, 3]).Select(id => new NodeId(id))], nodes?.Length ?? 3, ["m"u8.ToArray()]),
            },
            coordinator, health, NullLoggerFactory.Instance, stop);
}
