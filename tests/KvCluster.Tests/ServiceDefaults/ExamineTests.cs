using KvCluster.Admin.V1;
using KvCluster.Disk;
using KvCluster.Node.Api.Operators;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.Tests.Node;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>What a node answers to <c>kv doctor</c>.</summary>
public sealed class ExamineTests
{
    [Fact]
    public async Task Examine_OfANode_ReportsDiskLimitsAndCertificates()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var before = DateTimeOffset.UtcNow.AddMilliseconds(-1);
        var node = new NodeExamination();
        await Eventually.TrueAsync(async () =>
        {
            node = Assert.Single((await cluster.AdminOf(1).ExamineAsync(new ExamineRequest())).Nodes);
            Assert.Equal((1u, "", ""), (node.Node, node.Error, node.DiskError));
            return node.CoordinatorError.Length == 0;
        }, "the coordinator answers in time");
        Assert.InRange(DateTimeOffset.UnixEpoch.AddMicroseconds(node.ClockUs), before, DateTimeOffset.UtcNow);
        Assert.InRange(node.SyncUs, 1u, node.SyncUsMax);
        Assert.InRange(node.DiskFreeBytes, 1u, node.DiskBytes);
        Assert.InRange(node.CoordinatorUs, 1u, 60_000_000u);
        if (OperatingSystem.IsLinux())
            Assert.InRange(node.OpenFiles, 1u, node.OpenFilesMax);
        Assert.Equal("", node.CertificateFile);
        Assert.False(File.Exists(Path.Combine(cluster.DirectoryOf(1), "examined")));
    }

    /// <summary>Doctor called a coordinator healthy that had lost the cluster's record, because it answered.</summary>
    [Fact]
    [Trait("Turn", "4")]
    public async Task Examine_WhileTheClustersRecordIsGone_SaysThatTheCoordinatorIsNotFollowed()
    {
        const string Metric = "kvcluster.node.coordinator.followed";
        await using var cluster = await NodeCluster.StartAsync(1);
        var values = new Dictionary<string, double>();
        using var listener = cluster.WatchMetrics(1, values);
        await UntilAsync("", followed: 1);
        var held = await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Cluster, held.ModRevision, null, 0, CancellationToken.None);
        await UntilAsync(CoordinatorFollowing.Lost, followed: 0);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Cluster, 0, held.Value, 0, CancellationToken.None);
        await UntilAsync("", followed: 1);

        Task UntilAsync(string refusal, double followed) => Eventually.TrueAsync(
            async () =>
            {
                values.Clear();
                listener.RecordObservableInstruments();
                var node = Assert.Single((await cluster.AdminOf(1).ExamineAsync(new ExamineRequest())).Nodes);
                return (node.CoordinatorRefusal, node.CoordinatorError, values[Metric]) == (refusal, "", followed);
            },
            $"the node says of the coordinator: '{refusal}'");
    }

    /// <summary>It was said not to answer, with the advice to look at the network and the password.</summary>
    [Fact]
    public async Task Examine_OfACoordinatorThatIsAnotherStore_SaysThatItIsNotFollowed()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        await using var replaced = new Replaced(coordinator);
        using var disk = new SimulatedDisk();
        var examiner = new NodeDiagnostics(new NodeIdentity("c", "id", new(1), 1, "http://127.0.0.1:1"), "/", disk, replaced, null, TimeProvider.System);

        var found = await examiner.ExamineAsync(CancellationToken.None);

        Assert.Equal(("", "the coordinator's cluster id was 1 and is 2"), (found.CoordinatorError, found.CoordinatorRefusal));
    }

    /// <summary>Each call synced a file seven times, for any caller and as often as it liked.</summary>
    [Fact]
    public async Task Examine_AskedManyTimes_SyncsOnce()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var admin = cluster.AdminOf(1);
        // What was found is told for five seconds, and the machine may stall for longer.
        await Eventually.TrueAsync(async () =>
        {
            var told = await Task.WhenAll(Enumerable.Range(0, 20).Select(_ => admin.ExamineAsync(new ExamineRequest()).ResponseAsync));
            // Times of seven syncs and a call, in microseconds. Two examinations would not measure the same values.
            return told.Select(answer => (answer.Nodes[0].SyncUs, answer.Nodes[0].SyncUsMax, answer.Nodes[0].CoordinatorUs)).Distinct().Count() == 1;
        }, "twenty calls are told one examination");
    }

    /// <summary>The file stayed when the disk was full, and took a part of what was left.</summary>
    [Fact]
    public async Task Examine_OnAFullDisk_LeavesNoFile()
    {
        using var folder = new TemporaryDirectory();
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        using var disk = new SimulatedDisk { CapacityBytes = 8_192 };
        var examiner = new NodeDiagnostics(new NodeIdentity("c", "id", new(1), 1, "http://127.0.0.1:1"), "/", disk, coordinator, null, TimeProvider.System);

        var found = await examiner.ExamineAsync(CancellationToken.None);

        Assert.Contains("no space left", found.DiskError, StringComparison.Ordinal);
        Assert.Empty(disk.List("/"));
    }

    private sealed class Replaced(ICoordinator inner) : PassingCoordinator(inner)
    {
        public override Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) =>
            throw new CoordinatorAlarmException("the coordinator's cluster id was 1 and is 2");
    }
}
