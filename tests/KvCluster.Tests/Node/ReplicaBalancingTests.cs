using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Coordination;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Replicas that move by themselves: to nodes that join, away from nodes that leave, and not at all while an operator has paused moves.</summary>
public sealed class ReplicaBalancingTests
{
    [Fact]
    [Trait("Turn", "5")]
    public async Task Nodes_JoiningAndLeaving_GetReplicasAndLoseThem()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "f"u8.ToArray(), "p"u8.ToArray());
        foreach (var (key, shard) in Keys)
            await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8(key) }, shard);

        await cluster.StartNodeAsync(4);
        await cluster.StartNodeAsync(5);
        await Eventually.TrueAsync(
            () => HeldAsync(cluster).Result is var held && held.Max() - held.Min() <= 1 && held.Sum() == 9, "nine replicas are spread over five nodes");

        var left = await PlaceAsync(cluster, new PlaceRequest { StayUpTo = 3 });
        Assert.Equal([4u, 5u], left.Leaving.Select(node => node.Node));
        await Eventually.TrueAsync(() => HeldAsync(cluster).Result is [3, 3, 3, 0, 0], "all replicas are back on three nodes");
        // The node that answers sees the last record a moment later.
        await Eventually.TrueAsync(() => PlaceAsync(cluster, new PlaceRequest()).Result.Leaving.All(static node => node.Replicas == 0), "no replica is counted "
            + "on the nodes that leave");
        await cluster.StopNodeAsync(4);
        await cluster.StopNodeAsync(5);
        await Eventually.TrueAsync(() => NodesAsync(cluster).Result is [1, 2, 3], "the map names no node that left");
        Assert.Empty((await PlaceAsync(cluster, new PlaceRequest())).Leaving);
        foreach (var (key, shard) in Keys)
        {
            var got = await cluster.AskLeaderAsync(
                kv => kv.GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8(key) }, deadline: DateTime.UtcNow + Eventually.Limit), shard);
            Assert.Equal(key, got.Value.ToStringUtf8());
        }

        await cluster.StartNodeAsync(4);
        await Eventually.TrueAsync(() => NodesAsync(cluster).Result is [1, 2, 3, 4], "the map names the node that joined again");
        // A restart alone brings it no replicas.
        Assert.Equal([4u], (await PlaceAsync(cluster, new PlaceRequest())).Leaving.Select(node => node.Node));
        await PlaceAsync(cluster, new PlaceRequest { Stay = { 4 } });
        await Eventually.TrueAsync(() => HeldAsync(cluster).Result[3] > 0, "it gets a replica");
    }

    /// <summary>A node that was removed was leaving for ever, and a new one with its id got no replicas.</summary>
    [Fact]
    [Trait("Turn", "5")]
    public async Task Node_ThatLeftAndIsGoneForLong_IsForgotten()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        cluster.LearnerPatience = TimeSpan.FromSeconds(1);
        await cluster.StartNodeAsync(1);
        await cluster.StartNodeAsync(2);
        await Eventually.TrueAsync(() => NodesAsync(cluster).Result is [1, 2], "the map names both nodes");
        Assert.Equal([2u], (await PlaceAsync(cluster, new PlaceRequest { Leave = { 2 }, Paused = true })).Leaving.Select(node => node.Node));
        await cluster.StopNodeAsync(2);

        await Eventually.TrueAsync(() => RecordAsync().Result.Leaving.Count == 0, "the placement record does not name the node that is gone");

        Assert.True((await RecordAsync()).Paused);
        Assert.Empty((await PlaceAsync(cluster, new PlaceRequest())).Leaving);

        async Task<PlacementRecord> RecordAsync() =>
            RecordText.Parse<PlacementRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Placement, CancellationToken.None)).Value!);
    }

    [Fact]
    public async Task Place_WithFewerNodesThanReplicas_ChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await Eventually.TrueAsync(
            () => cluster.Coordinator.ListAsync(cluster.Keys.Nodes, CancellationToken.None).Result.Entries.Count >= 6, "three nodes are registered");
        // On a machine that stalls, a registration may end and is then made again.
        await Eventually.TrueAsync(async () =>
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => PlaceAsync(cluster, new PlaceRequest { Leave = { 3 } }));
            Assert.Equal(StatusCode.FailedPrecondition, failure.StatusCode);
            return failure.Status.Detail == "Nothing was changed: only 2 nodes would remain, but every shard has 3 replicas.";
        }, "the refusal counts the nodes that would remain");
        Assert.Empty((await PlaceAsync(cluster, new PlaceRequest())).Leaving);
    }

    /// <summary>Node 0 was accepted and stayed in the record as a node that leaves.</summary>
    [Fact]
    public async Task Place_OfAnUnknownNode_ChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        foreach (var request in (PlaceRequest[])[new() { Leave = { 0 } }, new() { Stay = { 0 } }, new() { Leave = { 1, 0 } }])
            await RefusedAsync(request, 0);
        await RefusedAsync(new PlaceRequest { Leave = { 99 } }, 99);
        Assert.Empty((await PlaceAsync(cluster, new PlaceRequest())).Leaving);

        // Node 1 is known from its registration on.
        Task RefusedAsync(PlaceRequest request, uint unknown) => Eventually.TrueAsync(async () =>
        {
            var failure = await Assert.ThrowsAsync<RpcException>(() => PlaceAsync(cluster, request));
            Assert.Equal(StatusCode.FailedPrecondition, failure.StatusCode);
            return failure.Status.Detail == $"Nothing was changed: there is no node {unknown}.";
        }, $"node {unknown} is named as unknown");
    }

    [Fact]
    public async Task Place_Paused_IsKeptAndAnsweredByEveryNode()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PlaceAsync(cluster, new PlaceRequest { Paused = true });
        Assert.True((await cluster.AdminOf(3).PlaceAsync(new PlaceRequest())).Paused);
        Assert.False((await PlaceAsync(cluster, new PlaceRequest { Paused = false })).Paused);
    }

    /// <summary>A read was said to have changed something perhaps, because the coordinator did not answer.</summary>
    [Fact]
    public async Task Place_WithoutTheCoordinator_ChangesNothing_UnlessItFailsDuringTheChange()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        await using var failing = new Failing(cluster.Coordinator, cluster.Keys.Placement);
        await using var node = await NodeHost.StartAsync(
            cluster.OptionsOf(1), failing, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(node.Address);
        var admin = new Admin.V1.Admin.AdminClient(channel.Calls());

        failing.AtChanges = true;
        await Refusal.ExpectAsync(() => PlaceAsync(new PlaceRequest { Paused = true }), StatusCode.Unknown, "OUTCOME_UNKNOWN", "may or may not have been made: "
            + "it is gone. Repeat the call");
        failing.AtReads = true;
        await Refusal.ExpectAsync(() => PlaceAsync(new PlaceRequest()), StatusCode.FailedPrecondition, "NOT_PLACED", "Nothing was changed: it is gone.");
        (failing.AtReads, failing.AtChanges) = (false, false);
        Assert.True((await PlaceAsync(new PlaceRequest { Paused = true })).Paused);

        Task<PlaceResponse> PlaceAsync(PlaceRequest request) => admin.PlaceAsync(request, deadline: DateTime.UtcNow + Eventually.Limit).ResponseAsync;
    }

    /// <summary>An operator was told in one line that the change may have been made and that nothing was changed.</summary>
    [Fact]
    public async Task Place_InACoordinatorWithoutTheClustersRecord_ChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var held = await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Cluster, held.ModRevision, null, 0, CancellationToken.None);
        await Refusal.ExpectAsync(() => PlaceAsync(cluster, new PlaceRequest { Paused = true }), StatusCode.FailedPrecondition, "NOT_PLACED", "Nothing was "
            + $"changed: {CoordinatorGuard.WhyNotChanged}.");
        Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Placement, CancellationToken.None)).Value);
    }

    [Fact]
    public async Task Place_WithARecordThatCannotBeRead_ChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Placement, 0, "no record", 0, CancellationToken.None);
        await Refusal.ExpectAsync(() => PlaceAsync(cluster, new PlaceRequest()), StatusCode.FailedPrecondition, "NOT_PLACED", "The coordinator holds a "
            + "PlacementRecord that cannot be read");
    }

    private static readonly (string Key, uint Shard)[] Keys = [("a", 0), ("g", 1), ("q", 2)];

    private static async Task<PlaceResponse> PlaceAsync(NodeCluster cluster, PlaceRequest request) =>
        await cluster.AdminOf(1).PlaceAsync(request, deadline: DateTime.UtcNow.AddSeconds(60));

    private static async Task<uint[]> NodesAsync(NodeCluster cluster)
    {
        using var stream = new V1.Cluster.ClusterClient(cluster.ChannelOf(1).Calls()).WatchShards(new WatchShardsRequest());
        Assert.True(await stream.ResponseStream.MoveNext(CancellationToken.None));
        return [.. stream.ResponseStream.Current.Nodes.Select(node => node.Node).Order()];
    }

    // The number of voters on each node. A learner does not count yet.
    private static async Task<int[]> HeldAsync(NodeCluster cluster)
    {
        var list = await cluster.Coordinator.ListAsync(cluster.Keys.Shards, CancellationToken.None);
        var replicas = list.Entries.SelectMany(entry => RecordText.Parse<ShardRecord>(entry.Value!).Replicas).Where(replica => !replica.Learner).ToList();
        return [.. Enumerable.Range(1, 5).Select(node => replicas.Count(replica => replica.Node == node))];
    }

    /// <summary>A coordinator that can fail whenever it is asked for one key.</summary>
    private sealed class Failing(ICoordinator inner, string key) : PassingCoordinator(inner)
    {
        private volatile bool _atReads;
        private volatile bool _atChanges;

        public bool AtReads
        {
            get => _atReads;
            set => _atReads = value;
        }

        public bool AtChanges
        {
            get => _atChanges;
            set => _atChanges = value;
        }

        public override Task<CoordinatorRead> GetAsync(string read, CancellationToken cancellationToken) =>
            AtReads && read == key ? throw new CoordinatorUnavailableException("it is gone.") : base.GetAsync(read, cancellationToken);

        public override Task<CompareAndSetResult> CompareAndSetAsync(
            string changed, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
            AtChanges && changed == key
                ? throw new CoordinatorUnavailableException("it is gone.")
                : base.CompareAndSetAsync(changed, expectedRevision, value, lease, guardedBy, cancellationToken);
    }
}
