using Google.Protobuf;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>Nodes that start, lead, stop and refuse to start.</summary>
public sealed class NodeHostTests
{
    [Fact]
    public async Task ThreeNodes_ElectLeadersAndAnswerPutsEvenWithoutOne()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        await cluster.PutAsync(Request("a", "1"), shard: 0);
        await cluster.PutAsync(Request("z", "1"), shard: 1);
        var leader = await cluster.LeaderOfAsync(0);
        await cluster.StopNodeAsync(leader);
        await cluster.PutAsync(Request("b", "2"), shard: 0);
        var got = await cluster.AskLeaderAsync(kv => kv.GetManyAsync(new GetManyRequest { Keys = { Bytes("a"), Bytes("b") } }));
        Assert.Equal([Bytes("1"), Bytes("2")], got.Entries.Select(entry => entry.Value));

        await cluster.StartNodeAsync(leader);
        var put = await cluster.PutAsync(Request("c", "3"), shard: 0);
        // The leadership may return to the preferred node meanwhile, which is a change too. Digests are compared at one etag.
        var compared = new List<ReplicaStatus>();
        await Eventually.TrueAsync(
            () =>
            {
                compared = [.. ((uint[])[1, 2, 3]).SelectMany(node => cluster.StatusOfAsync(node, digest: true).Result.Replicas)
                    .Where(replica => replica.Route.Shard == 0 && replica.DigestEtag is not null)];
                return compared.Count == 3 && compared.DistinctBy(replica => replica.DigestEtag).Count() == 1
                    && EtagOf(compared[0].DigestEtag) >= EtagOf(put.Position.Etag);
            },
            "all three replicas are at one etag, with the last put");
        Assert.Single(compared.DistinctBy(replica => replica.Digest));
    }

    /// <summary>etcd was overloaded and refused the mark of a new replica once. The replica stayed failed until the node was restarted.</summary>
    [Fact]
    public async Task Start_WhileTheCoordinatorRefusesAReplicasMark_OpensItSoonAfter()
    {
        using var folder = new TemporaryDirectory();
        await using var embedded = EmbeddedCoordinator.Open(Path.Combine(folder.Path, "coordinator"), TimeProvider.System);
        await ClusterInit.CreateAsync(embedded, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        var coordinator = new RefusingCoordinator(embedded, new CoordinatorKeys("local").Shard(new(0)), refusals: 1);
        var options = new NodeOptions { Node = new(1), DataDirectory = Path.Combine(folder.Path, "node-1"), Listen = "http://127.0.0.1:0" };
        await using var host = await NodeHost.StartAsync(options, coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(host.Address);
        await Eventually.TrueAsync(
            () => new Cluster.ClusterClient(channel.Calls()).GetStatus(new GetStatusRequest()).Nodes.Single().Replicas is [{ Role: Role.Leader }],
            "the replica works");
        Assert.True(coordinator.Left < 0, "nothing was refused");
    }

    [Fact]
    public async Task Status_OfOneShard_ShowsItsProtocolStateAndDecisions()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        await cluster.PutAsync(Request("z", "1"), shard: 1);
        var leader = 0u;
        var detail = new ReplicaDetail();
        await Eventually.TrueAsync(
            () => WrittenTo(cluster)
                && (detail = DetailOf(cluster, leader = cluster.LeaderOfAsync(1).Result)) is { LeaseLeftUs: > 0, Followers: { Count: 2 } followers }
                && followers.All(follower => follower.State == FollowerStatus.Types.State.Replicate && follower.GrantLeftUs > 0),
            "both followers replicate and grant");
        Assert.Equal(3, detail.Record.Replicas.Count);
        Assert.Contains(detail.Decisions, line => line.Text.StartsWith("serving epoch", StringComparison.Ordinal));
        Assert.Equal(new[] { 1u, 2u, 3u }.Where(node => node != leader), detail.Followers.Select(follower => follower.Node).Order());
        // Who leads may have changed meanwhile.
        await Eventually.TrueAsync(
            () => WrittenTo(cluster) && DetailOf(cluster, cluster.LeaderOfAsync(1).Result == 1 ? 2u : 1u) is { GrantLeftUs: > 0, Followers.Count: 0 },
            "the follower grants, and has no followers");
    }

    /// <summary>The data path does not need the coordinator. Shards with a leader keep working, also over new connections.</summary>
    [Fact]
    public async Task Puts_WithoutTheCoordinator_StillSucceed()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await cluster.PutAsync(Request("a", "1"));
        // A majority is enough for the put. The third replica may still be reading its record.
        foreach (var node in (uint[])[1, 2, 3])
            await Eventually.TrueAsync(
                () => cluster.StatusOfAsync(node).Result.Replicas is [{ Role: Role.Leader or Role.Follower }], $"the replica of node {node} has joined");
        await cluster.Coordinator.DisposeAsync();
        await cluster.PutAsync(Request("b", "2"));
        await cluster.StopNodeAsync(new[] { 1u, 2u, 3u }.First(node => node != cluster.LeaderOfAsync(0).Result));
        await cluster.PutAsync(Request("c", "3"));
        var got = await cluster.AskLeaderAsync(kv => kv.GetManyAsync(new GetManyRequest { Keys = { Bytes("a"), Bytes("b"), Bytes("c") } }));
        Assert.Equal(["1", "2", "3"], got.Entries.Select(entry => entry.Value.ToStringUtf8()));
    }

    [Fact]
    public async Task Restart_KeepsEverythingAcknowledged()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.PutAsync(Request("k", "v"));
        for (var restart = 0; restart < 2; restart++)
        {
            await cluster.StopNodeAsync(1);
            await cluster.StartNodeAsync(1);
            Assert.Equal(Bytes("v"), (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = Bytes("k") }))).Value);
        }
    }

    [Fact]
    public async Task Stop_AfterMuchWasWritten_LeavesTheNextStartLittleToReplay()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        for (var number = 0; number < 6; number++)
            await cluster.PutAsync(new PutRequest { Key = Bytes($"large/{number}"), Value = ByteString.CopyFrom(new byte[900 << 10]) });
        await cluster.StopNodeAsync(1);
        using var store = StandaloneStore.Open(
            LocalDisk.Instance, Path.Combine(cluster.DirectoryOf(1), "shards", "0"), new StoreOptions(), TimeProvider.System, NullLogger.Instance);
        Assert.False(store.Store.Statistics.HasMuchToReplay);
        // The last record may be in the journal only, and the store shows it when its own first record is durable.
        await Eventually.TrueAsync(() => Has(store, "large/5"u8), "the last value is there");

        static bool Has(StandaloneStore store, ReadOnlySpan<byte> key)
        {
            using var snapshot = store.OpenSnapshot();
            return snapshot.TryGet(TreeId.Kv, key, out _);
        }
    }

    [Fact]
    public async Task Start_InADirectoryInUse_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await Assert.ThrowsAsync<DirectoryInUseException>(() => cluster.StartNodeAsync(1));
    }

    [Fact]
    public async Task Start_WithACopyOfTheDirectoryWhileTheNodeRuns_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await Eventually.TrueAsync(() => ReadNode(cluster) is not null, "the node is registered");
        var copy = cluster.DirectoryOf(9);
        Directory.CreateDirectory(copy);
        foreach (var file in (string[])["format", "owner", "starts"])
            File.Copy(Path.Combine(cluster.DirectoryOf(1), file), Path.Combine(copy, file));
        var options = new NodeOptions { Node = new(1), DataDirectory = copy, Listen = "http://127.0.0.1:0" };
        var refused = await Assert.ThrowsAsync<NodeRunsAlreadyException>(
            () => NodeHost.StartAsync(options, cluster.Coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
        Assert.Contains(cluster.AddressOf(1), refused.Message, StringComparison.Ordinal);
        await cluster.StopNodeAsync(1);
        await cluster.StartNodeAsync(1);
        Assert.Equal(2ul, DirectoryStarts.TryParse(await File.ReadAllTextAsync(Path.Combine(cluster.DirectoryOf(1), "starts")))!.Put.Starts);
    }

    [Fact]
    public async Task Start_InADirectoryOfAnotherFormat_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        await File.WriteAllTextAsync(Path.Combine(cluster.DirectoryOf(1), "format"), "kvcluster node 99");
        Assert.Contains("99", (await Assert.ThrowsAsync<DirectoryFormatException>(() => cluster.StartNodeAsync(1))).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Start_InADirectoryOfSomethingElse_IsRefusedAndChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        Directory.Delete(cluster.DirectoryOf(1), recursive: true);
        Directory.CreateDirectory(cluster.DirectoryOf(1));
        await File.WriteAllTextAsync(Path.Combine(cluster.DirectoryOf(1), "letter.txt"), "dear");
        await Assert.ThrowsAsync<DirectoryFormatException>(() => cluster.StartNodeAsync(1));
        Assert.Equal(
            ["LOCK", "letter.txt"], Directory.EnumerateFileSystemEntries(cluster.DirectoryOf(1)).Select(Path.GetFileName).Order(StringComparer.Ordinal));
    }

    /// <summary>A replica that may have promised and acknowledged is never created again under its id.</summary>
    [Fact]
    [Trait("Turn", "7")]
    public async Task Start_WithAReplicasDirectoryMissing_ReportsItLost()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await cluster.LeaderOfAsync(0);
        await cluster.LeaderOfAsync(1);
        await cluster.StopNodeAsync(1);
        Directory.Delete(Path.Combine(cluster.DirectoryOf(1), "shards", "1"), recursive: true);
        await cluster.StartNodeAsync(1);
        await cluster.LeaderOfAsync(0);
        await Eventually.TrueAsync(
            () => cluster.StatusOfAsync(1).Result.Replicas.Count(replica => replica.Role != Role.Opening) == 2, "both replicas are reported");
        var lost = (await cluster.StatusOfAsync(1)).Replicas.Single(replica => replica.Route.Shard == 1);
        Assert.Equal(Role.Failed, lost.Role);
        Assert.StartsWith("lost", lost.Failure, StringComparison.Ordinal);
        Assert.False(Directory.Exists(Path.Combine(cluster.DirectoryOf(1), "shards", "1")));
    }

    [Fact]
    [Trait("Turn", "7")]
    public async Task Start_WithATemporarilyUnreadableReplica_OpensItLater()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.PutAsync(Request("k", "v"));
        await cluster.StopNodeAsync(1);
        var data = Directory.EnumerateFiles(Path.Combine(cluster.DirectoryOf(1), "shards", "0"), "data", SearchOption.AllDirectories).Single();
        File.Move(data, data + ".away");
        // A file that exists and whose every read fails.
        File.CreateSymbolicLink(data, "/proc/self/mem");
        await cluster.StartNodeAsync(1);
        await Eventually.TrueAsync(() => cluster.StatusOfAsync(1).Result.Replicas is [{ Role: Role.Failed }], "the replica is reported");
        File.Delete(data);
        File.Move(data + ".away", data);
        Assert.Equal(Bytes("v"), (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = Bytes("k") }))).Value);
    }

    /// <summary>Each attempt counted as a start, of which none ran, when a supervisor started the node again and again.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Start_OnAPortInUse_IsRefusedUncountedAndReleasesTheDirectory(bool isForPeers)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var taken = isForPeers ? cluster.PeerAddressOf(1) : cluster.AddressOf(1);
        var options = isForPeers ? cluster.OptionsOf(2) with { ListenPeers = taken } : cluster.OptionsOf(2) with { Listen = taken };
        var refused = await Assert.ThrowsAnyAsync<IOException>(
            () => NodeHost.StartAsync(options, cluster.Coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None));
        Assert.StartsWith($"Cannot listen at {taken}: ", refused.Message, StringComparison.Ordinal);
        Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Starts(new(2)), CancellationToken.None)).Value);
        await cluster.StartNodeAsync(2);
    }

    [Fact]
    public async Task Start_RegistersTheNodeAndStopUnregistersIt()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        // A stop gives this one second and leaves the rest to the expiry of the lease. If the machine stalls for that long, the node is stopped again.
        for (var stop = 0; ; stop++)
        {
            await Eventually.TrueAsync(
                () => ReadNode(cluster) is { } record && AddressIn(record) == $"http://{cluster.ChannelOf(1).Target}", "the node is registered");
            await cluster.StopNodeAsync(1);
            if (ReadNode(cluster) is null)
                return;
            Assert.True(stop < 5, "Its record stays.");
            await cluster.StartNodeAsync(1);
        }
    }

    // Without requests a leader becomes quiescent after two seconds, without a lease and grants.
    private static bool WrittenTo(NodeCluster cluster) => cluster.PutAsync(Request("z", "1"), shard: 1).Result.Position is not null;

    // Empty until the node has opened the replica.
    private static ReplicaDetail DetailOf(NodeCluster cluster, uint node) =>
        new Cluster.ClusterClient(cluster.ChannelOf(node).Calls())
            .GetStatus(new GetStatusRequest { Shard = 1 }).Nodes.Single().Replicas.SingleOrDefault()?.Detail ?? new ReplicaDetail();

    private static string AddressIn(string record) => RecordText.Parse<NodeRecord>(record).Address;

    private static string? ReadNode(NodeCluster cluster) => cluster.Coordinator.GetAsync(cluster.Keys.Node(new(1)), CancellationToken.None).Result.Value;

    private static Etag EtagOf(KvCluster.V1.Etag etag) => new(etag.Epoch, etag.Change);

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static PutRequest Request(string key, string value) => new() { Key = Bytes(key), Value = Bytes(value) };
}
