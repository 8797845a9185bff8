using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Faults of nodes that each lead some of sixteen shards and follow in the others, under five client processes whose histories must be linearizable.</summary>
public sealed class ManyShardsTests(ManyShardsCluster shared) : IClassFixture<ManyShardsCluster>
{
    private const int Some = 150;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F8_EtcdAwayWhileAMinorityFails_GoesOnAndNothingMovesWhenItReturns()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var put = Task.FromResult(new V1.PutResponse());
        await cluster.LeaderStaysAsync(async leader =>
        {
            await cluster.Etcd.KillAsync(0);
            await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
            // A follower of shard 0; the shards that it leads wait for etcd, the others go on.
            var minority = cluster.Nodes.First(node => node.Node != leader);
            await minority.KillAsync();
            put = cluster.KvOf(leader).PutAsync(new V1.PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("a"), Value = Google.Protobuf.ByteString.Empty }).ResponseAsync;
            await ((Task)put).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
            cluster.Etcd.Start(0);
            minority.Start();
            await histories.MoreChangesAsync(2 * Some);
            await cluster.UntilEveryReplicaWorksAsync();
        });
        // The one of the round in which the leader stayed.
        Assert.NotNull((await put).Position);
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F12_NodeWithManyLeadershipsDies_AllItsShardsAreLedAgain()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        for (var node = 1; node <= cluster.Nodes.Count; node++)
        {
            await cluster.Node(node).KillAsync();
            await cluster.UntilLedWithoutAsync(node, ManyShardsCluster.Shards);
            await histories.MoreChangesAsync(Some);
            cluster.Node(node).Start();
            await cluster.UntilEveryReplicaWorksAsync();
        }

        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F26_RollingRestart_StopsEveryNodeCleanlyAndLosesNothing()
    {
        var (cluster, histories) = await shared.BeginAsync();
        foreach (var node in cluster.Nodes)
        {
            await histories.MoreChangesAsync(Some);
            Assert.Equal(0, await node.StopAsync());
            await cluster.HandOverAsync();
            await histories.MoreChangesAsync(Some);
            node.Start();
            await cluster.UntilEveryReplicaWorksAsync();
        }

        await shared.EndAsync();
    }
}
