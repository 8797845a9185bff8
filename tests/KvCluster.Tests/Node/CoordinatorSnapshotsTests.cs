using System.Security.Cryptography;
using Grpc.Core;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Processes;
using KvCluster.Storage.Files;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// Snapshots of a real etcd, and of one that fails in ways that a real one cannot be made to fail in; and what nodes know of them. Their restore is tried with
/// processes.
/// </summary>
public sealed class CoordinatorSnapshotsTests : IDisposable
{
    private const string AgeName = "kvcluster.node.coordinator.snapshot.age";

    private static readonly CancellationToken Never = CancellationToken.None;
    private static readonly CoordinatorKeys Keys = new("local");

    private readonly TemporaryDirectory _folder = new();
    private readonly ManualTime _time = new();

    private string Snapshots => Path.Combine(_folder.Path, "snapshots");

    public void Dispose() => _folder.Dispose();

    [ToolFact("etcd", "etcdctl")]
    public async Task Save_BeyondTheNumberToKeep_DeletesTheOldestAndNothingElse()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await etcd.ControlAsync("put", Keys.Cluster, "{}");
        Directory.CreateDirectory(Snapshots);
        string[] ofOthers = ["etcd-notes.db", "weekly.db"];
        foreach (var name in ofOthers.Append("etcd-20200101T000000Z.db.part"))
            await File.WriteAllTextAsync(Path.Combine(Snapshots, name), "x");
        var saved = new List<string>();
        for (var round = 0; round < 4; round++)
        {
            _time.Advance(TimeSpan.FromHours(1));
            var snapshot = await Of(etcd.Endpoints, keep: 2).SaveAsync(TimeSpan.Zero, Never);
            saved.Add(Path.GetFileName(snapshot.Path));
            Assert.Equal((round < 2 ? 0 : 1, new FileInfo(snapshot.Path).Length), (snapshot.Deleted, snapshot.Bytes));
            using var file = LocalDisk.Instance.Open(snapshot.Path, new StorageFileOptions(StorageFileMode.OpenExisting));
            Assert.True(CoordinatorSnapshots.IsComplete(file, snapshot.Bytes));
        }

        Assert.Equal(ofOthers.Concat(saved.TakeLast(2)).Order(StringComparer.Ordinal), FilesOf(Snapshots));
        Assert.Equal(SnapshotTime.Format(_time.GetUtcNow()), await etcd.ControlAsync("get", "--print-value-only", Keys.Snapshot));
    }

    /// <summary>A clock that was set back must not have the newest snapshot deleted at once.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Save_ByAClockThatWasSetBack_KeepsWhatItTook()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        await etcd.ControlAsync("put", Keys.Cluster, "{}");
        await Of(etcd.Endpoints, keep: 1).SaveAsync(TimeSpan.Zero, Never);
        _time.Advance(TimeSpan.FromHours(-1));
        var snapshot = await Of(etcd.Endpoints, keep: 1).SaveAsync(TimeSpan.Zero, Never);
        Assert.Equal([Path.GetFileName(snapshot.Path)], FilesOf(Snapshots));
    }

    /// <summary>After some rounds only snapshots of an empty etcd would be left.</summary>
    [ToolFact("etcd", "etcdctl")]
    public async Task Save_OfAnEtcdThatLostItsData_IsRefusedAtOnceAndKeepsTheSnapshots()
    {
        await using var etcd = await EtcdProcesses.StartAsync();
        Assert.Contains(
            "not created yet",
            (await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => Of(etcd.Endpoints, keep: 1).SaveAsync(TimeSpan.Zero, Never))).Message,
            StringComparison.Ordinal);
        await etcd.ControlAsync("put", Keys.Cluster, "{}");
        var snapshot = await Of(etcd.Endpoints, keep: 1).SaveAsync(TimeSpan.Zero, Never);
        await etcd.ControlAsync("del", Keys.Cluster);
        _time.Advance(TimeSpan.FromHours(1));
        var lost = await Assert.ThrowsAsync<CoordinatorLostException>(() => Of(etcd.Endpoints, keep: 1).SaveAsync(Eventually.Limit, Never));
        Assert.Contains("its data is lost", lost.Message, StringComparison.Ordinal);
        Assert.Equal([Path.GetFileName(snapshot.Path)], FilesOf(Snapshots));
    }

    /// <summary>
    /// An etcd without space sends snapshots and refuses puts. The whole save was repeated for two minutes: each attempt added a snapshot and deleted the
    /// oldest, and one run could replace all of them.
    /// </summary>
    [Fact]
    public async Task Save_WhoseTimeIsRefused_AddsOneFileAndSaysSo()
    {
        await using var etcd = await CountingEtcd.StartAsync();
        await etcd.Coordinator.CompareAndSetAsync(Keys.Cluster, 0, "{}", 0, Never);
        var before = await Of([etcd.Address], keep: 2).SaveAsync(TimeSpan.Zero, Never);
        Assert.Null(before.Untold);

        etcd.Refusal = new Status(StatusCode.ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        var saved = await Of([etcd.Address], keep: 2, TimeProvider.System).SaveAsync(TimeSpan.FromSeconds(5), Never);

        Assert.Contains("database space exceeded", saved.Untold, StringComparison.Ordinal);
        Assert.Equal((2, 0), (etcd.Snapshots, saved.Deleted));
        Assert.Equal([Path.GetFileName(before.Path), Path.GetFileName(saved.Path)], FilesOf(Snapshots));
    }

    [Fact]
    public async Task Run_WhenTheTimeIsRefused_SaysThatTheSnapshotWasSaved()
    {
        await using var etcd = await CountingEtcd.StartAsync();
        await etcd.Coordinator.CompareAndSetAsync(Keys.Cluster, 0, "{}", 0, Never);
        etcd.Refusal = new Status(StatusCode.ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        var log = new LinesLog();
        using var stop = new CancellationTokenSource();
        var running = Of([etcd.Address], keep: 2, log: log).RunAsync(TimeSpan.FromHours(6), stop.Token);
        await Eventually.TrueAsync(() => log.Lines.Length > 0, "the loop says what became of the snapshot");
        await stop.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running);

        var line = Assert.Single(log.Lines);
        Assert.StartsWith("Warning: Saved the coordinator's data in ", line, StringComparison.Ordinal);
        Assert.Contains("its time could not be put into the coordinator", line, StringComparison.Ordinal);
        Assert.Single(FilesOf(Snapshots));
    }

    /// <summary>Whether a change without an answer was applied is unknown, and it would be repeated for ever.</summary>
    [Theory]
    [InlineData(false, "No answer came within 30 s.")]
    [InlineData(true, "This was stopped.")]
    public async Task Save_WhoseTimeIsNotAnswered_EndsInTimeAndKeepsTheFile(bool isStopped, string reason)
    {
        await using var etcd = await CountingEtcd.StartAsync();
        await etcd.Coordinator.CompareAndSetAsync(Keys.Cluster, 0, "{}", 0, Never);
        etcd.Refusal = new Status(StatusCode.Unavailable, "etcdserver: leader changed");
        using var stop = new CancellationTokenSource();
        var saving = Of([etcd.Address], keep: 1).SaveAsync(TimeSpan.Zero, stop.Token);
        await Eventually.TrueAsync(() => etcd.Changes > 0, "the time is put");
        if (isStopped)
            await stop.CancelAsync();
        else
            _time.Advance(TimeSpan.FromMinutes(1));

        var saved = await saving.WaitAsync(Eventually.Limit);

        Assert.Equal(reason, saved.Untold);
        Assert.Equal([Path.GetFileName(saved.Path)], FilesOf(Snapshots));
    }

    /// <summary>A member that hangs may still answer pings. It held the loop for ever, and nothing said so.</summary>
    [Fact]
    public async Task Save_FromAMemberThatFallsSilent_EndsWithoutAFile()
    {
        await using var etcd = await CountingEtcd.StartAsync();
        await etcd.Coordinator.CompareAndSetAsync(Keys.Cluster, 0, "{}", 0, Never);
        etcd.FallsSilent = true;
        var saving = Of([etcd.Address], keep: 1, silenceMax: TimeSpan.FromMilliseconds(200)).SaveAsync(TimeSpan.Zero, Never);

        var failure = await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => saving.WaitAsync(Eventually.Limit));

        Assert.Equal($"The coordinator at {etcd.Address} sent nothing of its snapshot for 0.2 s. Nothing was saved or deleted.", failure.Message);
        Assert.Empty(FilesOf(Snapshots));
    }

    [Fact]
    public async Task Save_OfTheEmbeddedCoordinator_IsRefusedAndLeavesNoFile()
    {
        await using var coordinator = EmbeddedCoordinator.Open(Path.Combine(_folder.Path, "coordinator"), TimeProvider.System);
        await coordinator.CompareAndSetAsync(Keys.Cluster, 0, "{}", 0, Never);
        await using var server = await CoordinatorServer.StartAsync(coordinator, "http://127.0.0.1:0", NullLoggerFactory.Instance, Never);
        var refused = await Assert.ThrowsAsync<CoordinatorUnavailableException>(() => Of([server.Address], keep: 1).SaveAsync(TimeSpan.Zero, Never));
        Assert.Contains("Unimplemented", refused.Message, StringComparison.Ordinal);
        Assert.Empty(FilesOf(Snapshots));
    }

    [Fact]
    public void IsComplete_OfAFileThatIsCutOrChanged_IsFalse()
    {
        var pages = RandomNumberGenerator.GetBytes(200_704);
        byte[] whole = [.. pages, .. SHA256.HashData(pages)];
        byte[] changed = [.. whole];
        changed[100_000] ^= 1;
        Assert.True(IsComplete("whole", whole));
        Assert.False(IsComplete("changed", changed));
        Assert.False(IsComplete("without a checksum", pages));
        Assert.False(IsComplete("without a page", whole[4_096..]));
        Assert.False(IsComplete("empty", []));
    }

    /// <summary>A script of an operator may put anything. The nodes' map must not suffer.</summary>
    [Fact]
    public async Task Status_OfANode_HasTheTimeInTheCoordinator_AndNothingWhereThatIsNoTime()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var values = new Dictionary<string, double>();
        using var metrics = cluster.WatchMetrics(1, values);
        await KnowsAsync(0);
        metrics.RecordObservableInstruments();
        Assert.DoesNotContain(AgeName, values.Keys);

        await PutAsync("1700000000\n");
        await KnowsAsync(1_700_000_000_000_000);
        metrics.RecordObservableInstruments();
        Assert.InRange(values[AgeName], TimeSpan.FromDays(700).TotalSeconds, TimeSpan.FromDays(100_000).TotalSeconds);

        foreach (var nonsense in (string[])["yesterday", "-5", "", "99999999999999999999"])
        {
            await PutAsync("1700000001");
            await KnowsAsync(1_700_000_001_000_000);
            await PutAsync(nonsense);
            await KnowsAsync(0);
        }

        Task KnowsAsync(long unixUs) => Eventually.TrueAsync(
            async () => (await cluster.StatusOfAsync(1)).CoordinatorSnapshotUnixUs == unixUs, $"the node knows of the snapshot at {unixUs}");

        async Task PutAsync(string text)
        {
            var read = await cluster.Coordinator.GetAsync(cluster.Keys.Snapshot, Never);
            await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Snapshot, read.ModRevision, text, 0, Never);
        }
    }

    private static IEnumerable<string> FilesOf(string folder) =>
        Directory.GetFiles(folder).Select(static path => Path.GetFileName(path)).Order(StringComparer.Ordinal);

    private bool IsComplete(string name, byte[] content)
    {
        var path = Path.Combine(_folder.Path, name);
        File.WriteAllBytes(path, content);
        using var file = LocalDisk.Instance.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        return CoordinatorSnapshots.IsComplete(file, content.Length);
    }

    private CoordinatorSnapshots Of(
        IReadOnlyList<string> endpoints, int keep, TimeProvider? time = null, TimeSpan? silenceMax = null, ILogger? log = null) => new(
            () => new EtcdCoordinator(
                new EtcdOptions { Endpoints = endpoints, RequestTime = Eventually.Limit, SnapshotSilenceMax = silenceMax ?? Eventually.Limit },
                NullLogger.Instance),
            Keys, LocalDisk.Instance, new SnapshotFolder(Snapshots, keep), time ?? _time, log ?? NullLogger.Instance);
}
