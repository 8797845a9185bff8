using Google.Rpc;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.Internal.V1;

namespace KvCluster.Tests.Node;

/// <summary>Replacements as operations, which go on without their callers.</summary>
public sealed class OperationTests
{
    private static readonly uint[] Nodes = [1, 2, 3, 4];

    [Fact]
    public async Task Replace_StartedTwice_IsOneOperationThatIsWatchedToItsEnd()
    {
        await using var cluster = await StartAsync();
        var (leader, from, to) = await RolesAsync(cluster);
        var admin = cluster.AdminOf(leader);
        var request = new ReplaceRequest { Shard = 0, FromNode = from, ToNode = to };
        var ids = (await Task.WhenAll(Enumerable.Range(0, 3).Select(_ => admin.ReplaceAsync(request).ResponseAsync)))
            .Select(static answer => answer.Operation.Id).Distinct().ToList();
        var id = Assert.Single(ids);
        using var watch = admin.WatchOperation(new WatchOperationRequest { Id = id });
        Admin.V1.ClusterOperation? last = null;
        while (await watch.ResponseStream.MoveNext(CancellationToken.None))
            last = watch.ResponseStream.Current.Operation;
        Assert.Equal(
            (OperationState.Done, OperationKind.Replace, 0u, from, to, leader), (last!.State, last.Kind, last.Shard, last.FromNode, last.ToNode, last.Node));
        Assert.True(last.EndedUs >= last.StartedUs);
        Assert.Equal(last, (await admin.GetOperationAsync(new GetOperationRequest { Id = id })).Operation);
        Assert.Contains(last, (await admin.ListOperationsAsync(new ListOperationsRequest())).Operations);
        Assert.True(OperationId.TryParse(id, out var parsed));
        var added = (await cluster.RecordAsync()).Replicas.Single(replica => replica.Node == to);
        Assert.Equal((false, parsed.Number, 0u), (added.Learner, added.Operation, added.ReplacesNode));
        // Cancelling what has ended changes nothing.
        Assert.Equal(OperationState.Done, (await admin.CancelOperationAsync(new CancelOperationRequest { Id = id })).Operation.State);
        foreach (var unknown in (string[])["", "x", "0-00000000000000ff"])
            Assert.Equal("NO_OPERATION", await ReasonAsync(async () => await admin.GetOperationAsync(new GetOperationRequest { Id = unknown })));
    }

    /// <summary>The leader that had begun it is gone, and nobody asks again.</summary>
    [Fact]
    public async Task Operation_BegunByAnEarlierLeader_IsResumedByTheNextOne()
    {
        await using var cluster = await StartAsync();
        var (leader, from, to) = await RolesAsync(cluster);
        await cluster.ChangeRecordAsync(
            record => record.Replicas.Add(new ReplicaRecord { Replica = 77, Node = to, Learner = true, Operation = 5, ReplacesNode = from }));
        await Eventually.TrueAsync(
            () => cluster.RecordAsync().Result.Replicas is var replicas && replicas.Any(replica => replica is { Replica: 77, Learner: false })
                && replicas.All(replica => replica.Node != from), "the learner replaced the voter");
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var operation = await client.Admin.GetOperationAsync(new OperationId(new(0), 5).ToString());
        Assert.Equal((KvOperationState.Done, (uint?)from, (uint?)to), (operation.State, operation.FromNode, operation.ToNode));
        Assert.Contains((await client.Admin.ListOperationsAsync()).Operations, other => other.Id == operation.Id);
    }

    [Fact]
    public async Task CancelOperation_WhileItsLearnerCannotCatchUp_RemovesTheLearner()
    {
        await using var cluster = await NodeCluster.StartWithLinksToHoldAsync(3, NodeCluster.Steady);
        await cluster.FollowedAsync();
        await cluster.AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true });
        var leader = 0u;
        await Eventually.TrueAsync(async () =>
        {
            if ((leader = await cluster.LeaderOfAsync(0)) != 1)
                return true;
            try
            {
                await cluster.AdminOf(1).TransferAsync(new TransferRequest { Shard = 0, ToNode = 2 });
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
            {
                // Node 2 was not heard of for more than half a second, as happens when the machine stalls.
            }

            return false;
        }, "another leader");
        await cluster.FollowedAsync();
        var before = (await cluster.RecordAsync()).Replicas.Single(static replica => replica.Node == 1).Replica;
        var admin = cluster.AdminOf(leader);
        cluster.HoldLinksOfFirst();
        var id = (await admin.ReplaceAsync(new ReplaceRequest { Shard = 0, FromNode = 1, ToNode = 1, Force = true })).Operation.Id;
        await Eventually.TrueAsync(
            () => cluster.RecordAsync().Result.Replicas.Any(replica => replica.Learner && replica.Replica != before), "the learner is in the record");
        var ended = (await admin.CancelOperationAsync(new CancelOperationRequest { Id = id })).Operation;
        Assert.Equal((OperationState.Cancelled, ""), (ended.State, ended.Reason));
        Assert.Equal([2u, 3u], (await cluster.RecordAsync()).Replicas.Select(static replica => replica.Node).Order());
        cluster.ReleaseLinksOfFirst();
    }

    private static async Task<NodeCluster> StartAsync()
    {
        var cluster = await NodeCluster.StartAsync(4);
        await cluster.FollowedAsync();
        await cluster.AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true });
        return cluster;
    }

    private static async Task<(uint Leader, uint From, uint To)> RolesAsync(NodeCluster cluster)
    {
        var leader = await cluster.SettledLeaderAsync();
        var members = (await cluster.RecordAsync()).Replicas.Select(static replica => replica.Node).ToList();
        var to = Nodes.Single(node => !members.Contains(node));
        await Eventually.TrueAsync(async () => await ReasonAsync(
            async () => await cluster.AdminOf(leader).ReplaceAsync(new ReplaceRequest { Shard = 0, FromNode = 99, ToNode = to })) is "NOT_REPLACED"
            && await DetailAsync(cluster, leader, to) is var detail && detail.Contains("has no voter", StringComparison.Ordinal),
            "the leader is connected to the fourth node");
        return (leader, members.First(node => node != leader), to);
    }

    private static async Task<string> DetailAsync(NodeCluster cluster, uint leader, uint to) =>
        (await Assert.ThrowsAsync<RpcException>(
            async () => await cluster.AdminOf(leader).ReplaceAsync(new ReplaceRequest { Shard = 0, FromNode = 99, ToNode = to }))).Status.Detail;

    private static async Task<string> ReasonAsync(Func<Task> call) =>
        (await Assert.ThrowsAsync<RpcException>(call)).GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason;
}
