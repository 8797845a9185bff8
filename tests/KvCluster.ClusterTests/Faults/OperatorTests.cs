using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Operations of an operator, under five client processes whose histories must be linearizable: F25.</summary>
[Trait("Turn", "4")]
public sealed class OperatorTests
{
    private const int Some = 100;
    private const int Nodes = 4;

    /// <summary>
    /// Four nodes and three replicas of each shard. The controller balances them, then a replica is replaced by one on the node that has none.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F25_TransferReplaceAndDrain_UnderLoad_LoseNothing()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: Nodes, splitAt: "h,p,w");
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        // Creation put one replica on the fourth node. The controller moves more there, and would interfere with the operator's moves from here on.
        await cluster.UntilLevelAsync();
        await cluster.PausePlacementAsync();
        await histories.MoreChangesAsync(Some);
        var members = await MembersAsync(cluster);
        var spare = Enumerable.Range(1, Nodes).Except(members).Single();

        var leader = await cluster.LeaderAsync();
        var next = members.First(node => node != leader);
        await cluster.UntilLeadsAsync(next);
        await histories.MoreChangesAsync(Some);

        // A follower is moved to the spare node, then the leader's replica: the leader transfers first.
        var follower = members.First(node => node != leader && node != next);
        await UntilReplacedAsync(cluster, follower, spare);
        await histories.MoreChangesAsync(Some);
        await UntilReplacedAsync(cluster, await cluster.LeaderAsync(), follower);
        await histories.MoreChangesAsync(Some);

        var drained = await cluster.LeaderAsync();
        await Eventually.TrueAsync(
            async () => (await DrainAsync(cluster, drained, isDraining: true)).Kept.Count == 0, "the node transferred all leaderships");
        await histories.MoreChangesAsync(Some);
        // If an election brings it a leadership meanwhile, it transfers that as well.
        await Eventually.TrueAsync(
            async () => (await cluster.StatusOfAsync(drained))?.Replicas.All(static replica => replica.Role == Role.Follower) == true,
            "the node that drains leads nothing");
        await DrainAsync(cluster, drained, isDraining: false);
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    /// <summary>
    /// Three nodes become six while clients write: oxia #845, where shards had no leader for long. Every node gets its share of the replicas, then the founders
    /// die one after the other, and what was acknowledged is there.
    /// </summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F25_NodesFromThreeToSix_UnderLoad_ShareTheReplicasAndLoseNothing()
    {
        const int Founders = 3;
        await using var cluster = await FaultCluster.StartAsync(nodes: 2 * Founders, splitAt: "h,p,w", founders: Founders);
        await using var histories = new Histories(cluster.Folder, [.. cluster.Endpoints.Take(Founders)]);
        await histories.MoreChangesAsync(Some);

        foreach (var joining in cluster.Nodes.Skip(Founders))
        {
            joining.Start();
            await histories.MoreChangesAsync(Some);
        }
        await cluster.UntilLevelAsync();
        await cluster.UntilEqualAsync();
        await histories.MoreChangesAsync(Some);

        // The new nodes do not only hold replicas: they serve in the place of each founder. Clients know only founders' addresses.
        foreach (var founder in cluster.Nodes.Take(Founders))
        {
            await founder.KillAsync();
            await histories.MoreChangesAsync(Some);
            founder.Start();
            await cluster.UntilEqualAsync();
        }
        await histories.CheckAsync();
    }

    private static Task<DrainResponse> DrainAsync(FaultCluster cluster, int node, bool isDraining) =>
        FaultCluster.AnsweredAsync(() => cluster.AdminOf(node).DrainAsync(new DrainRequest { Node = (uint)node, Draining = isDraining }));

    private static async Task<IReadOnlyList<int>> MembersAsync(FaultCluster cluster) =>
        [.. (await cluster.RecordAsync()).Replicas.Select(static replica => (int)replica.Node)];

    // As an operator does: asks the leader, and asks the next one if the leader has changed.
    private static async Task UntilReplacedAsync(FaultCluster cluster, int from, int to)
    {
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                // If only the answer was lost, the replacement is already done.
                if (!(await MembersAsync(cluster)).Contains(from))
                    return true;
                await cluster.AdminOf(await cluster.LeaderAsync())
                    .ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = (uint)from, ToNode = (uint)to });
                return true;
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable or StatusCode.Unknown)
            {
                // Another node leads, or the answer was lost.
                return false;
            }
        }, $"node {to} votes in the place of node {from}");
        var record = await cluster.RecordAsync();
        Assert.Contains(record.Replicas, replica => replica.Node == to && !replica.Learner);
        Assert.DoesNotContain(record.Replicas, replica => replica.Node == from);
    }
}
