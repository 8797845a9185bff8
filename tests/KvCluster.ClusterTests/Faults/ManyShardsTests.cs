using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// Faults of nodes that lead some of sixteen shards and follow in the others, under five client processes whose histories must be linearizable.
/// </summary>
[Trait("Turn", "3")]
public sealed class ManyShardsTests(ManyShardsCluster shared) : IClassFixture<ManyShardsCluster>
{
    private const int Some = 150;

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F8_EtcdUnavailableWhileAMinorityFails_ContinuesAndNothingMovesWhenItReturns()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await histories.MoreChangesAsync(Some);
        var put = Task.FromResult(new V1.PutResponse());
        await cluster.LeaderStaysAsync(async leader =>
        {
            await cluster.Etcd.KillAsync(0);
            await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
            // A follower of shard 0. The shards that it leads wait for etcd, the others continue.
            var minority = cluster.Nodes.First(node => node.Node != leader);
            await minority.KillAsync();
            put = cluster.KvOf(leader)
                .PutAsync(new V1.PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("a"), Value = Google.Protobuf.ByteString.Empty }).ResponseAsync;
            await ((Task)put).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            await cluster.UntilMoreChangesOrLeaderlessAsync(histories, Some);
            cluster.Etcd.Start(0);
            minority.Start();
            await histories.MoreChangesAsync(2 * Some);
            await cluster.UntilEveryReplicaWorksAsync();
        });
        // The put of the round in which the leader stayed.
        Assert.NotNull((await put).Position);
        await shared.EndAsync();
    }

    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F12_NodeWithManyLeadershipsDies_AllItsShardsGetNewLeaders()
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

    /// <summary>The unary clients of the histories repeat nothing. In addition a client library puts into all shards, and none of its calls may fail.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public async Task F26_RollingRestart_StopsEveryNodeCleanlyFailsNoCallAndLosesNothing()
    {
        var (cluster, histories) = await shared.BeginAsync();
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.Endpoints, Timeout = Eventually.Limit });
        var restarted = new TaskCompletionSource();
        var puts = Task.Run(() => PutUntilAsync(client, restarted.Task));
        foreach (var node in cluster.Nodes)
        {
            await histories.MoreChangesAsync(Some);
            Assert.Equal(0, await node.StopAsync());
            await cluster.TransferAsync();
            await histories.MoreChangesAsync(Some);
            node.Start();
            await cluster.UntilEveryReplicaWorksAsync();
        }

        restarted.SetResult();
        var last = await puts;
        foreach (var (key, value) in last)
            Assert.Equal(value, System.Text.Encoding.UTF8.GetString((await client.GetAsync(key)).Value.Span));
        await shared.EndAsync();
    }

    // Puts one after the other into each shard in turn, until the end of the round in which the task ends. Returns the last value of each key. A call
    // that fails ends it with the exception.
    private static async Task<IReadOnlyDictionary<string, string>> PutUntilAsync(KvClient client, Task end)
    {
        var last = new Dictionary<string, string>();
        for (var round = 0; !end.IsCompleted; round++)
        {
            for (var shard = 0; shard < ManyShardsCluster.Shards; shard++)
            {
                var (key, value) = ($"{(char)('a' + shard)}/rolling", $"round {round}");
                await client.PutAsync(key, value);
                last[key] = value;
            }
        }

        return last;
    }
}
