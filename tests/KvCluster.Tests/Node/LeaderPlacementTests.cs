using System.Diagnostics;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>Transfers of leadership: requested, on a drain, on a stop, and back to a node that returned.</summary>
public sealed class LeaderPlacementTests
{
    [Fact]
    public async Task Transfer_ToANode_MakesItLeadAndKeepsAllWrites()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PutAsync(cluster, "a", "1");
        for (var turn = 0; turn < 3; turn++)
        {
            var next = (await cluster.LeaderOfAsync(0) % 3) + 1;
            await TransferAsync(cluster, next);
            await PutAsync(cluster, $"b{turn}", "2");
        }
        Assert.Equal("1", (await cluster.AskLeaderAsync(kv => kv.GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8("a") }))).Value.ToStringUtf8());
    }

    [Fact]
    public async Task Transfer_AtAFollowerOrToANodeThatIsDown_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PutAsync(cluster, "a", "1");
        for (var round = 0; ; round++)
        {
            var (leader, epoch) = (await cluster.LeaderOfAsync(0), (await cluster.RecordAsync()).Epoch);
            var (other, down) = ((leader % 3) + 1, ((leader + 1) % 3) + 1);
            var atFollower = await ReasonAsync(() => cluster.AdminOf(other).TransferAsync(new TransferRequest { Shard = 0 }).ResponseAsync);
            await cluster.StopNodeAsync(down);
            var toNodeDown = await ReasonAsync(() => cluster.AdminOf(leader).TransferAsync(new TransferRequest { Shard = 0, ToNode = down }).ResponseAsync);
            var wasSteady = (leader, epoch) == (await cluster.LeaderOfAsync(0), (await cluster.RecordAsync()).Epoch);
            if (wasSteady)
            {
                Assert.Equal(("NOT_LEADER", "NOT_TRANSFERRED"), (atFollower, toNodeDown));
                break;
            }
            // A leader transfers by itself if its disk is slow for a moment, as when the machine stalls.
            Assert.True(round < 5, $"Refused with {atFollower} and {toNodeDown}, and the leader changed each time.");
            await cluster.StartNodeAsync(down);
        }
        await PutAsync(cluster, "b", "2");
    }

    /// <summary>An operator who mistyped a shard was told that the node does not hold "the key".</summary>
    [Fact]
    public async Task TransferAndReplace_OfAnUnknownShard_ReportIt()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        foreach (var ask in (Func<Task>[])[
            () => cluster.AdminOf(1).TransferAsync(new TransferRequest { Shard = 99 }).ResponseAsync,
            () => cluster.AdminOf(1).ReplaceAsync(new ReplaceRequest { Shard = 99, FromNode = 1, ToNode = 1 }).ResponseAsync])
        {
            var refused = await Assert.ThrowsAsync<RpcException>(ask);
            Assert.Equal((StatusCode.NotFound, "There is no shard 99; nothing was changed."), (refused.StatusCode, refused.Status.Detail));
        }
    }

    [Fact]
    [Trait("Turn", "4")]
    public async Task Drain_TransfersEveryLeadership_AndTheNodeTakesNoneUntilUndrained()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "h"u8.ToArray(), "p"u8.ToArray());
        for (var shard = 0u; shard < 3; shard++)
            await FollowedAsync(cluster, await cluster.LeaderOfAsync(shard), shard);
        Assert.Equal("WRONG_NODE", await ReasonAsync(() => cluster.AdminOf(1).DrainAsync(new DrainRequest { Node = 2, Draining = true }).ResponseAsync));

        for (var round = 0; ; round++)
        {
            await Eventually.TrueAsync(() => LedByAsync(cluster, 1).Result == 1, "node 1 leads the shard that prefers it");
            var before = await EpochsAsync(cluster);
            var drained = await cluster.AdminOf(1).DrainAsync(new DrainRequest { Node = 1, Draining = true }, deadline: DateTime.UtcNow + Eventually.Limit);
            if (drained is { Kept.Count: 0, GivenAway: 1 } && await EpochsAsync(cluster) == before + 1)
                break;
            // The machine stalled for seconds: no follower kept up for that long, or a leadership moved by itself.
            Assert.True(round < 5, $"{drained} after {await EpochsAsync(cluster) - before} changes of leaders.");
            await cluster.AdminOf(1).DrainAsync(new DrainRequest { Node = 1, Draining = false });
        }

        for (var shard = 0u; shard < 3; shard++)
            Assert.NotEqual(1u, await cluster.LeaderOfAsync(shard));

        await cluster.AdminOf(1).DrainAsync(new DrainRequest { Node = 1, Draining = false });
        await Eventually.TrueAsync(() => LedByAsync(cluster, 1).Result == 1, "node 1 leads the shard that prefers it again");
    }

    [Fact]
    public async Task Drain_OfANodeNeededForAMajority_IsRefusedUnlessForced()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PutAsync(cluster, "a", "1");
        var leader = await cluster.LeaderOfAsync(0);
        await FollowedAsync(cluster, leader);
        var (away, other) = ((leader % 3) + 1, ((leader + 1) % 3) + 1);
        await cluster.StopNodeAsync(away);
        foreach (var node in (uint[])[leader, other])
            await Eventually.TrueAsync(() => ReasonAsync(() => cluster.AdminOf(node)
                .DrainAsync(new DrainRequest { Node = node, Draining = true }).ResponseAsync).Result == "NOT_DRAINED", $"node {node} does not drain");
        Assert.All((await cluster.StatusOfAsync(other)).Replicas, _ => Assert.False(cluster.StatusOfAsync(other).Result.Draining));
        await cluster.AdminOf(other).DrainAsync(new DrainRequest { Node = other, Draining = true, Force = true });
        Assert.True((await cluster.StatusOfAsync(other)).Draining);
    }

    [Fact]
    public async Task Drain_OfTwoNodesOfThreeAtOnce_IsRefusedForTheSecond()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PutAsync(cluster, "a", "1");
        await FollowedAsync(cluster, await cluster.LeaderOfAsync(0));
        var reasons = await Task.WhenAll(((uint[])[1, 2, 3])
            .Select(node => ReasonAsync(() => cluster.AdminOf(node).DrainAsync(new DrainRequest { Node = node, Draining = true }).ResponseAsync)));
        Assert.True(reasons.Count(reason => reason.Length == 0) <= 1, $"more than one of three nodes drains: {string.Join(", ", reasons)}");
        Assert.All(reasons.Where(reason => reason.Length > 0), reason => Assert.Equal("NOT_DRAINED", reason));
    }

    [Fact]
    public async Task Stop_TransfersLeadershipsFirst()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await PutAsync(cluster, "a", "1");
        // A stopping node asks once. If the machine has just stalled, no follower was heard from lately, and there is no target for a transfer.
        for (var stop = 0; ; stop++)
        {
            var leader = await cluster.LeaderOfAsync(0);
            await FollowedAsync(cluster, leader);
            var before = (await cluster.RecordAsync()).Epoch;
            await cluster.StopNodeAsync(leader);
            // An election would not have begun yet, because its shortest timeout is longer than the rest of a stop.
            var transferred = (await cluster.RecordAsync()).Epoch == before + 1;
            Assert.NotEqual(leader, await cluster.LeaderOfAsync(0));
            if (transferred)
                return;
            Assert.True(stop < 5, "No leadership was transferred.");
            await cluster.StartNodeAsync(leader);
        }
    }

    /// <summary>It waited five seconds for somebody to take over, and nobody could: each restart of a single node took that long.</summary>
    [Fact]
    public async Task Stop_OfTheOnlyReplica_WaitsForNobody()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await PutAsync(cluster, "a", "1");
        // If the machine stalls for as long, the node is stopped again.
        for (var stop = 0; ; stop++)
        {
            var began = Stopwatch.GetTimestamp();
            await cluster.StopNodeAsync(1);
            var took = Stopwatch.GetElapsedTime(began);
            if (took < TimeSpan.FromSeconds(5))
                return;
            Assert.True(stop < 5, $"The stop took {took}.");
            await cluster.StartNodeAsync(1);
            await cluster.LeaderOfAsync(0);
        }
    }

    // The number of leaderships of all shards together.
    private static async Task<ulong> EpochsAsync(NodeCluster cluster) =>
        (await cluster.Coordinator.ListAsync(cluster.Keys.Shards, CancellationToken.None)).Entries
            .Select(entry => RecordText.Parse<ShardRecord>(entry.Value!).Epoch).Aggregate((sum, epoch) => sum + epoch);

    private static async Task<int> LedByAsync(NodeCluster cluster, uint node) =>
        (await cluster.StatusOfAsync(node)).Replicas.Count(replica => replica.Role == Role.Leader);

    private static Task<PutResponse> PutAsync(NodeCluster cluster, string key, string value) =>
        cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8(value) });

    private static Task FollowedAsync(NodeCluster cluster, uint leader, uint shard = 0) => Eventually.TrueAsync(
        () => new V1.Cluster.ClusterClient(cluster.ChannelOf(leader).Calls())
            .GetStatus(new GetStatusRequest { Shard = shard }).Nodes.Single().Replicas.SingleOrDefault()
            ?.Detail?.Followers is { Count: 2 } followers && followers.All(follower => follower.State == FollowerStatus.Types.State.Replicate),
        "both followers replicate");

    /// <summary>
    /// Repeats the request while that node does not follow closely, its disk is slow for a moment, or the leadership went back to the preferred node.
    /// </summary>
    private static Task TransferAsync(NodeCluster cluster, uint to) => Eventually.TrueAsync(
        () =>
        {
            try
            {
                Assert.Equal(to, cluster.AdminOf(cluster.LeaderOfAsync(0).Result).Transfer(new TransferRequest { Shard = 0, ToNode = to }).Leader);
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
            {
                return false;
            }
            return cluster.LeaderOfAsync(0).Result == to;
        },
        $"leadership goes to node {to}");

    /// <summary>Returns why a call is refused, or "" if it is not.</summary>
    private static async Task<string> ReasonAsync(Func<Task> call)
    {
        try
        {
            await call();
            return "";
        }
        catch (RpcException refused)
        {
            return refused.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason;
        }
    }
}
