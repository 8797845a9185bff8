using Grpc.Core;
using KvCluster.ClusterTests.History;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>What an operator has a cluster do, under five client processes whose histories must be linearizable: F25.</summary>
public sealed class OperatorTests
{
    private const int Some = 100;
    private const int Nodes = 4;
    private const uint Shards = 4;

    /// <summary>Four nodes and three replicas of each shard: the controller levels them, then one is replaced by a learner on the node that has none.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F25_TransferReplaceAndDrain_UnderLoad_LoseNothing()
    {
        await using var cluster = await FaultCluster.StartAsync(nodes: Nodes, splitAt: "h,p,w");
        await using var histories = new Histories(cluster.Folder, cluster.Endpoints);
        await histories.MoreChangesAsync(Some);
        // Creation put one replica on the fourth node; the controller moves more there, and would move what the operator moves from here on.
        await Eventually.TrueAsync(async () => await LevelAsync(cluster), "the nodes have as many replicas each");
        Assert.True((await cluster.AdminOf(await cluster.LeaderAsync()).PlaceAsync(new PlaceRequest { Paused = true })).Paused);
        await histories.MoreChangesAsync(Some);
        var members = await MembersAsync(cluster);
        var spare = Enumerable.Range(1, Nodes).Except(members).Single();

        var leader = await cluster.LeaderAsync();
        var next = members.First(node => node != leader);
        await cluster.UntilLeadsAsync(next);
        await histories.MoreChangesAsync(Some);

        // A follower's place goes to the spare node, then the leader's own: it hands over first.
        var follower = members.First(node => node != leader && node != next);
        await UntilReplacedAsync(cluster, follower, spare);
        await histories.MoreChangesAsync(Some);
        await UntilReplacedAsync(cluster, await cluster.LeaderAsync(), follower);
        await histories.MoreChangesAsync(Some);

        var drained = await cluster.LeaderAsync();
        await Eventually.TrueAsync(async () => (await cluster.AdminOf(drained).DrainAsync(new DrainRequest { Node = (uint)drained, Draining = true })).Kept.Count == 0, "the node gave everything away");
        await histories.MoreChangesAsync(Some);
        // What an election brings to it meanwhile it gives away as well.
        await Eventually.TrueAsync(async () => (await cluster.StatusOfAsync(drained))?.Replicas.All(static replica => replica.Role == "follower") == true, "the node that drains leads nothing");
        await cluster.AdminOf(drained).DrainAsync(new DrainRequest { Node = (uint)drained });
        await histories.CheckAsync();
        await cluster.UntilEqualAsync();
    }

    private static async Task<IReadOnlyList<int>> MembersAsync(FaultCluster cluster) => [.. (await cluster.RecordAsync()).Replicas.Select(static replica => (int)replica.Node)];

    private static async Task<bool> LevelAsync(FaultCluster cluster)
    {
        var held = new int[Nodes];
        for (var shard = 0u; shard < Shards; shard++)
        {
            foreach (var replica in (await cluster.RecordAsync(shard)).Replicas)
            {
                if (replica.Learner)
                    return false;
                held[replica.Node - 1]++;
            }
        }
        return held.Max() - held.Min() <= 1;
    }

    // As an operator does: asks the leader, and again when it is another by now.
    private static async Task UntilReplacedAsync(FaultCluster cluster, int from, int to)
    {
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                // Done already where only the answer was lost.
                if (!(await MembersAsync(cluster)).Contains(from))
                    return true;
                await cluster.AdminOf(await cluster.LeaderAsync()).ReplaceAsync(new ReplaceRequest { FromNode = (uint)from, ToNode = (uint)to });
                return true;
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
            {
                return false;
            }
        }, $"node {to} votes in the place of node {from}");
        var record = await cluster.RecordAsync();
        Assert.Contains(record.Replicas, replica => replica.Node == to && !replica.Learner);
        Assert.DoesNotContain(record.Replicas, replica => replica.Node == from);
    }
}
