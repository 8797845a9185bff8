using System.Text.RegularExpressions;
using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>
/// Nodes that start with an old copy of their data. They continue without it if the other nodes have everything it holds, and are refused if that is not known.
/// </summary>
[Trait("Turn", "3")]
public sealed class StartWithOldCopyTests
{
    private const int Shards = 2;

    [Fact]
    public async Task OldCopy_WhileTheOthersServe_IsSetAsideAndReplacedThroughLearners()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        await CopyAsync(cluster, 3);
        await FillAsync(cluster);
        await RestoreAsync(cluster, 3);
        var before = await RecordsAsync(cluster);
        // As if the node had been killed after it set aside the first of its directories.
        var aside = Directory.CreateDirectory(Path.Combine(cluster.DirectoryOf(3), "aside"));
        Directory.Move(FolderOf(cluster, 3, 0), Path.Combine(aside.FullName, "0"));
        await cluster.StartNodeAsync(3);
        await RebuiltAsync(cluster, 3, before);
        Assert.Equal(["0", "1"], Directory.GetDirectories(aside.FullName).Select(Path.GetFileName).Order(StringComparer.Ordinal));

        // The directory that was the newest then is an old copy now. What was set aside before is deleted for it.
        await cluster.StopNodeAsync(3);
        GiveNewestBack(cluster, 3);
        before = await RecordsAsync(cluster);
        await cluster.StartNodeAsync(3);
        await RebuiltAsync(cluster, 3, before);
    }

    [Fact]
    public async Task OldCopies_OfAllNodes_AreRefusedUntilAMajorityHasItsNewestDirectories()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        uint[] nodes = [1, 2, 3];
        foreach (var node in nodes)
            await CopyAsync(cluster, node);
        await FillAsync(cluster);
        foreach (var node in nodes)
            await RestoreAsync(cluster, node);
        foreach (var node in nodes)
        {
            var refusal = await RefusalAsync(cluster, cluster.OptionsOf(node));
            Assert.Matches("which led shard [01] last, is not running|has no leader on another node", refusal);
            Assert.All(
                Enumerable.Range(0, Shards), shard => Assert.True(Directory.Exists(FolderOf(cluster, node, (uint)shard)), "a refused directory is unchanged"));
        }

        GiveNewestBack(cluster, 1);
        GiveNewestBack(cluster, 2);
        cluster.Replication = new ReplicationOptions();
        var before = await RecordsAsync(cluster);
        // At the same time, as after a power failure. The third node waits until the others serve.
        await Task.WhenAll(nodes.Select(node => cluster.StartNodeAsync(node)));
        await RebuiltAsync(cluster, 3, before);
        for (var key = 0; key < 20; key++)
            Assert.Equal(Key(key), (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = Key(key) }))).Value);
    }

    /// <summary>Nobody else has the data. Only the operator can say that there is no newer copy.</summary>
    [Fact]
    public async Task OldCopy_OfTheOnlyReplicas_IsRefusedUntilTheCountOfStartsIsSetBack()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.PutAsync(new PutRequest { Key = Key(1), Value = Key(1) });
        await CopyAsync(cluster, 1);
        await RestoreAsync(cluster, 1);
        Assert.Contains("shard 0 has no replica on another node", await RefusalAsync(cluster, cluster.OptionsOf(1)), StringComparison.Ordinal);
        Assert.False(Directory.Exists(Path.Combine(cluster.DirectoryOf(1), "aside")));
        // As deploy/OPERATIONS.md advises.
        var starts = (await File.ReadAllLinesAsync(Path.Combine(cluster.DirectoryOf(1), "starts")))[^1];
        var counted = await cluster.Coordinator.GetAsync("/kvcluster/local/nodes/1/starts", CancellationToken.None);
        await cluster.Coordinator.CompareAndSetAsync("/kvcluster/local/nodes/1/starts", counted.ModRevision, starts, 0, CancellationToken.None);
        await cluster.StartNodeAsync(1);
        Assert.Equal(Key(1), (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = Key(1) }))).Value);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task OldCopyOrEmptyDirectory_WhileTheNodeRuns_IsRefused(bool copy)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var other = cluster.OptionsOf(1) with { DataDirectory = cluster.DirectoryOf(1) + ".other", OldCopyWaitMax = TimeSpan.Zero };
        await cluster.StopNodeAsync(1);
        if (copy)
            EtcdProcesses.CopyFolder(cluster.DirectoryOf(1), other.DataDirectory);
        await cluster.StartNodeAsync(1);
        await Eventually.TrueAsync(
            () => cluster.Coordinator.GetAsync("/kvcluster/local/nodes/1", CancellationToken.None).Result.Value is not null, "it is registered");
        // A machine that stalls may lose the node's registration for a moment.
        await Eventually.TrueAsync(
            () => Regex.IsMatch(RefusalOf(cluster, other).Result, "Node 1 is already running|node 1 is registered at"), "it is refused while the node runs");
        Assert.False(Directory.Exists(Path.Combine(other.DataDirectory, "aside")));
        // The refused start did not count, so the node's own directory is still the newest.
        await cluster.StopNodeAsync(1);
        await cluster.StartNodeAsync(1);
    }

    [Fact]
    public async Task OldCopy_WithAShardThatTheCoordinatorDoesNotKnow_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await CopyAsync(cluster, 3);
        await RestoreAsync(cluster, 3);
        EtcdProcesses.CopyFolder(FolderOf(cluster, 3, 0), FolderOf(cluster, 3, 7));
        // A shard that has no leader for some seconds after the stop is a reason, too.
        await Eventually.TrueAsync(
            async () => (await RefusalAsync(cluster, cluster.OptionsOf(3))).Contains("no record of shard 7", StringComparison.Ordinal),
            "the shard without a record is the reason");
        Assert.True(Directory.Exists(FolderOf(cluster, 3, 0)), "a refused directory is unchanged");
    }

    /// <summary>Two processes of a node run, one of which was cut off from the coordinator for so long that it does not count as running.</summary>
    [Fact]
    public async Task Replica_CreatedByAnotherProcessOfTheNodeMeanwhile_IsNotCreatedTwice()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        Directory.Delete(cluster.DirectoryOf(1), recursive: true);
        var read = await cluster.Coordinator.GetAsync(cluster.Keys.Shard(new(0)), CancellationToken.None);
        var record = RecordText.Parse<ShardRecord>(read.Value!);
        (record.Replicas[0].Created, record.Replicas[0].Creator) = (false, 0);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Shard(new(0)), read.ModRevision, RecordText.Format(record), 0, CancellationToken.None);
        var coordinator = new MarkedByAnother(cluster.Coordinator, cluster.Keys.Shard(new(0)));
        await UnregisteredAsync(cluster);
        await using var host = await NodeHost.StartAsync(
            cluster.OptionsOf(1), coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = global::Grpc.Net.Client.GrpcChannel.ForAddress(host.Address);
        ReplicaStatus? replica = null;
        await Eventually.TrueAsync(
            () => (replica = new Cluster.ClusterClient(channel.Calls())
                .GetStatus(new GetStatusRequest()).Nodes.Single().Replicas.SingleOrDefault()) is { Role: not Role.Opening }, "the replica has a status");
        Assert.Equal((Role.Failed, "lost: another process of this node created it."), (replica!.Role, replica.Failure));
        Assert.False(Directory.Exists(FolderOf(cluster, 1, 0)), "its directory must not be opened by the next process");
    }

    /// <summary>
    /// Two copies of a directory are started at once and count the same start. This one's attempt had no answer, and what it then found was equal to what it
    /// had put, because the record did not name its writer. Both processes ran as the node.
    /// </summary>
    [Fact]
    public async Task TwoCopies_StartedAtOnce_OneIsRefusedThoughItsAnswerWasLost()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        var starts = await File.ReadAllTextAsync(Path.Combine(cluster.DirectoryOf(1), "starts"));
        var coordinator = new CountedByAnother(cluster.Coordinator, cluster.Keys.Starts(new(1)));
        await UnregisteredAsync(cluster);
        var refused = await Assert.ThrowsAsync<StaleDirectoryException>(
            () => NodeHost.StartAsync(cluster.OptionsOf(1), coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
        Assert.Contains("node 1 was started elsewhere at the same time", refused.Message, StringComparison.Ordinal);
        Assert.Equal(starts, await File.ReadAllTextAsync(Path.Combine(cluster.DirectoryOf(1), "starts")));
    }

    /// <summary>
    /// A copy was started and killed before the coordinator had counted that start, and then the original was started. The copy's count was as high as the
    /// original's, or higher, so it was opened as the newest directory, without what the original had acknowledged.
    /// </summary>
    [Theory]
    [InlineData(1)]
    [InlineData(3)]
    public async Task OldCopy_WhoseStartsWereInterrupted_IsRefused(int interrupted)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        var copy = cluster.OptionsOf(1) with { DataDirectory = CopyOf(cluster, 1) };
        EtcdProcesses.CopyFolder(cluster.DirectoryOf(1), copy.DataDirectory);
        for (var start = 0; start < interrupted; start++)
            await StartInterruptedAsync(cluster, copy, isCounted: false);
        await cluster.StartNodeAsync(1);
        await cluster.PutAsync(new PutRequest { Key = Key(1), Value = Key(1) });
        await cluster.StopNodeAsync(1);
        Assert.Contains("shard 0 has no replica on another node", await RefusalAsync(cluster, copy), StringComparison.Ordinal);
        await cluster.StartNodeAsync(1);
        Assert.Equal(Key(1), (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = Key(1) }))).Value);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task NewestDirectory_WhoseStartsWereInterrupted_IsStarted(bool isCounted)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        for (var start = 0; start < 3; start++)
            await StartInterruptedAsync(cluster, cluster.OptionsOf(1), isCounted);
        await cluster.StartNodeAsync(1);
    }

    /// <summary>What a directory noted before its last start and at it, what the coordinator has now, and whether the directory is an old copy.</summary>
    [Theory]
    [InlineData(5, 1, 6, 2, 6, 2, false)] // The last start was counted.
    [InlineData(5, 1, 6, 2, 5, 1, false)] // It was not, because the process was killed before.
    [InlineData(5, 1, 6, 2, 6, 3, true)] // Another directory was counted instead.
    [InlineData(5, 1, 8, 2, 6, 3, true)] // Also if this one was killed several times since.
    [InlineData(5, 1, 6, 2, 7, 3, true)] // Another directory was counted since.
    [InlineData(5, 1, 6, 2, 4, 3, false)] // The coordinator was restored from an old backup.
    [InlineData(0, 0, 0, 0, 0, 0, false)] // Nothing was ever started.
    [InlineData(0, 0, 0, 0, 1, 1, true)] // The directory is new, but the node is not.
    public void IsOldCopy_ComparesWhoCounted(ulong found, ulong foundBy, ulong put, ulong putBy, ulong counted, ulong countedBy, bool isOld)
    {
        var starts = new DirectoryStarts(new NodeStarts { Starts = found, Incarnation = foundBy }, new NodeStarts { Starts = put, Incarnation = putBy });
        var now = new NodeStarts { Starts = counted, Incarnation = countedBy };
        Assert.Equal(isOld, starts.IsOldCopy(now));
        Assert.Equal(starts, DirectoryStarts.TryParse(starts.ToString()));
        var next = starts.Next(now, 7);
        Assert.True(next.Put.Starts > put && next.Put.Starts > counted && next.Put.Incarnation == ((next.Put.Starts << 32) | 7));
        Assert.False(next.IsOldCopy(now) || next.IsOldCopy(next.Put));
        Assert.Null(DirectoryStarts.TryParse($"{put}"));
    }

    // Starts a node that is killed as it counts the start.
    private static async Task StartInterruptedAsync(NodeCluster cluster, NodeOptions options, bool isCounted)
    {
        var coordinator = new KilledAsItCounts(cluster.Coordinator, cluster.Keys.Starts(new(1)), isCounted);
        await UnregisteredAsync(cluster);
        await Assert.ThrowsAsync<KilledException>(
            () => NodeHost.StartAsync(options, coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
    }

    private static Task UnregisteredAsync(NodeCluster cluster) => Eventually.TrueAsync(
        () => cluster.Coordinator.GetAsync(cluster.Keys.Node(new(1)), CancellationToken.None).Result.Value is null,
        "the registration of the last process ends");

    // Copies the node's directory and starts the node once more.
    private static async Task CopyAsync(NodeCluster cluster, uint node)
    {
        await cluster.StopNodeAsync(node);
        EtcdProcesses.CopyFolder(cluster.DirectoryOf(node), CopyOf(cluster, node));
        await cluster.StartNodeAsync(node);
    }

    // Stops the node and replaces its directory with the copy.
    private static async Task RestoreAsync(NodeCluster cluster, uint node)
    {
        await cluster.StopNodeAsync(node);
        Directory.Move(cluster.DirectoryOf(node), NewestOf(cluster, node));
        Directory.Move(CopyOf(cluster, node), cluster.DirectoryOf(node));
    }

    private static void GiveNewestBack(NodeCluster cluster, uint node)
    {
        Directory.Delete(cluster.DirectoryOf(node), recursive: true);
        Directory.Move(NewestOf(cluster, node), cluster.DirectoryOf(node));
    }

    private static string CopyOf(NodeCluster cluster, uint node) => cluster.DirectoryOf(node) + ".copy";

    private static string NewestOf(NodeCluster cluster, uint node) => cluster.DirectoryOf(node) + ".newest";

    // Starts without waiting, except until the registration of the node's last process ends.
    private static async Task<string> RefusalAsync(NodeCluster cluster, NodeOptions options)
    {
        var refusal = "";
        var atOnce = options with { OldCopyWaitMax = TimeSpan.Zero };
        await Eventually.TrueAsync(
            () => !(refusal = RefusalOf(cluster, atOnce).Result).Contains("is registered at", StringComparison.Ordinal),
            "the last process' registration ends");
        return refusal;
    }

    private static async Task<string> RefusalOf(NodeCluster cluster, NodeOptions options)
    {
        var refused = await Assert.ThrowsAnyAsync<Exception>(
            () => NodeHost.StartAsync(options, cluster.Coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
        Assert.True(refused is StaleDirectoryException or NodeRunsAlreadyException, refused.ToString());
        return refused.Message;
    }

    private static async Task FillAsync(NodeCluster cluster)
    {
        for (var key = 0; key < 20; key++)
            await cluster.PutAsync(new PutRequest { Key = Key(key), Value = Key(key) });
    }

    private static async Task<IReadOnlyList<ShardRecord>> RecordsAsync(NodeCluster cluster) =>
        [.. (await cluster.Coordinator.ListAsync(cluster.Keys.Shards, CancellationToken.None)).Entries
            .Select(entry => RecordText.Parse<ShardRecord>(entry.Value!)).OrderBy(record => record.Shard)];

    private static async Task RebuiltAsync(NodeCluster cluster, uint node, IReadOnlyList<ShardRecord> before)
    {
        foreach (var record in before)
        {
            var old = record.Replicas.Single(replica => replica.Node == node).Replica;
            await Eventually.TrueAsync(
                () => RecordsAsync(cluster).Result[(int)record.Shard] is var now && now.Removed.Contains(old)
                    && now.Replicas.Any(replica => replica.Node == node && replica.Replica != old && replica is { Learner: false, Created: true }),
                $"node {node} has a new voter of shard {record.Shard}");
            await Eventually.TrueAsync(
                () => DigestOf(cluster, node, record.Shard) is { IsEmpty: false } digest && digest == DigestOf(cluster, node == 1 ? 2u : 1u, record.Shard),
                $"node {node} holds what the others hold");
        }
    }

    private static ByteString? DigestOf(NodeCluster cluster, uint node, uint shard) =>
        cluster.StatusOfAsync(node, digest: true, shard).Result.Replicas.SingleOrDefault()?.Digest;

    private static string FolderOf(NodeCluster cluster, uint node, uint shard) => Path.Combine(cluster.DirectoryOf(node), "shards", $"{shard}");

    private static ByteString Key(int key) => Bytes($"k{key}");

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    /// <summary>Counts a start for another process first, and loses the answer to the attempt that came too late.</summary>
    private sealed class CountedByAnother(ICoordinator inner, string key) : PassingCoordinator(inner)
    {
        private bool _isCounted;

        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            if (changed != key || _isCounted)
                return await base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken);
            _isCounted = true;
            var other = RecordText.Parse<NodeStarts>(value!);
            other.Incarnation ^= 1;
            await base.CompareAndSetAsync(changed, expectedRevision, RecordText.Format(other), lease, guardedBy, cancellationToken);
            return new CompareAndSetResult(SetOutcome.Unknown, 0);
        }
    }

    /// <summary>Ends the process when it asks to count a start, before or after the coordinator does so.</summary>
    private sealed class KilledAsItCounts(ICoordinator inner, string key, bool isCounted) : PassingCoordinator(inner)
    {
        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            if (changed != key)
                return await base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken);
            if (isCounted)
                Assert.Equal(SetOutcome.Won, (await base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken)).Outcome);
            throw new KilledException();
        }
    }

    private sealed class KilledException : Exception;

    /// <summary>Always marks the replica as another process first.</summary>
    private sealed class MarkedByAnother(ICoordinator inner, string key) : PassingCoordinator(inner)
    {
        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            var read = await GetAsync(key, cancellationToken);
            if (changed == key && RecordText.Parse<ShardRecord>(read.Value!) is { Replicas: [{ Created: false } made] } record)
            {
                (made.Created, made.Creator) = (true, 1);
                await base.CompareAndSetAsync(key, read.ModRevision, RecordText.Format(record), 0, guardedBy, cancellationToken);
            }

            return await base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken);
        }
    }
}
