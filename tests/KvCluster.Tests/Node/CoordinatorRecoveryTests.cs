using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Recovery;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>The records are gone from the coordinator, and are rebuilt from nodes that run or wait (F53). A lost store, and processes, are in the tests with processes.</summary>
public sealed class CoordinatorRecoveryTests
{
    private const uint Nodes = 3;
    private const int Shards = 2;

    private static readonly ByteString Key = ByteString.CopyFromUtf8("k");

    [Fact]
    public async Task Recover_WhileNodesRun_KeepsTheLeadersAndElectsAboveTheFloor()
    {
        await using var cluster = await StartAsync();
        var before = await cluster.RecordAsync();
        var placed = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        await DeleteAsync(cluster);
        var plan = await RecoverAsync(cluster, planOnly: true);
        Assert.Empty(plan.Refusals);
        Assert.False(plan.Applied);
        Assert.Equal([0U, 1U], plan.Shards.Select(static shard => shard.Shard));
        Assert.All(plan.Shards, static shard => Assert.Equal([1U, 2U, 3U], shard.Intact.Order()));
        Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value);

        Assert.True((await RecoverAsync(cluster)).Applied);
        var after = await cluster.RecordAsync();
        Assert.Equal((before.Epoch, before.Leader, before.LeaderIncarnation, before.Lineage), (after.Epoch, after.Leader, after.LeaderIncarnation, after.Lineage));
        await JoinedAsync(cluster, recovery: 1);
        await PutAsync(cluster);
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                await cluster.AdminOf(await cluster.LeaderOfAsync(0)).TransferAsync(new TransferRequest { Shard = 0 });
            }
            catch (RpcException)
            {
                // The target has not joined the recovery yet, so it does not campaign. Ask again.
            }

            return (await cluster.RecordAsync()).Epoch > after.EpochFloor;
        }, "a leader is elected in an epoch above the floor");
        await PutAsync(cluster);
        await Eventually.TrueAsync(async () => KeysOf(placed).IsSubsetOf(KeysOf(await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None))), "all records are there again, those of the nodes too");
    }

    /// <summary>Whatever the last record was that was put, nobody follows before that of the cluster, and the next recovery completes it.</summary>
    [Fact]
    public async Task Recover_ThatEndsAfterAnyRecord_IsFollowedByNobodyAndCompletedByTheNext()
    {
        await using var cluster = await StartAsync();
        await DeleteAsync(cluster);
        for (var puts = 0; ; puts++)
        {
            var cut = new CutOff(cluster.Coordinator, puts);
            var recovery = new CoordinatorRecovery(
                new(1), cut, cluster.Keys, async _ => await ReportOfAsync(cluster, 1), static (_, address) => GrpcChannel.ForAddress(address), NullLogger.Instance);
            try
            {
                Assert.True((await recovery.RecoverAsync(new RecoverRequest(), CancellationToken.None)).Applied);
                // Two shards, the starts of three nodes, and the cluster.
                Assert.Equal(6, puts);
                break;
            }
            catch (RecoveryEndedException)
            {
                Assert.True(puts < 6, "all records were put");
                Assert.Null((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value);
                for (var node = 1U; node <= Nodes; node++)
                    Assert.Equal(0UL, (await ReportOfAsync(cluster, node)).Cluster.Recovery);
                await PutAsync(cluster);
            }
        }

        // Each that had put something took a number.
        await JoinedAsync(cluster, (await cluster.RecordAsync()).Recovery);
        await PutAsync(cluster);
    }

    [Fact]
    public async Task Recover_WhileNodesWait_StartsThem()
    {
        await using var cluster = await StartAsync();
        var port = FreePorts.Ten();
        for (var node = 1U; node <= Nodes; node++)
        {
            await cluster.StopNodeAsync(node);
            await cluster.StartNodeAsync(OptionsOf(node));
        }

        await KnowAllAsync(cluster, node => $"http://127.0.0.1:{port + node}");
        await PutAsync(cluster);
        for (var node = 1U; node <= Nodes; node++)
            await cluster.StopNodeAsync(node);
        await DeleteAsync(cluster);
        cluster.Replication = new ReplicationOptions();
        var starting = Task.WhenAll(Enumerable.Range(1, (int)Nodes).Select(node => cluster.StartNodeAsync(OptionsOf((uint)node))));
        using var channel = GrpcChannel.ForAddress($"http://127.0.0.1:{port + 2}");
        RecoverResponse? done = null;
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                done = await new Admin.V1.Coordinator.CoordinatorClient(channel).RecoverAsync(new RecoverRequest());
                return done.Applied;
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable)
            {
                // It does not listen yet.
                return false;
            }
        }, "all nodes answer, and the records are rebuilt");
        Assert.All(done!.Shards, static shard => Assert.Equal(0U, shard.Leader));
        await starting.WaitAsync(Eventually.Limit);
        await PutAsync(cluster);
        Assert.Equal(Key, (await cluster.AskLeaderAsync(static kv => kv.GetAsync(new GetRequest { Key = Key }))).Value);

        NodeOptions OptionsOf(uint node) => cluster.OptionsOf(node) with { ListenPeers = $"http://127.0.0.1:{port + node}" };
    }

    private static async Task<NodeCluster> StartAsync()
    {
        var cluster = await NodeCluster.StartAsync((int)Nodes, "m"u8.ToArray());
        await PutAsync(cluster);
        await KnowAllAsync(cluster, cluster.PeerAddressOf);
        return cluster;
    }

    // What a node has on disk follows what it hears, a moment later.
    private static Task KnowAllAsync(NodeCluster cluster, Func<uint, string> addressOf) => Eventually.TrueAsync(async () =>
    {
        for (var node = 1U; node <= Nodes; node++)
        {
            var report = await ReportOfAsync(cluster, node);
            if (report.Replicas.Count != Shards || !report.Nodes.Select(static known => (known.Node, known.PeerAddress)).SequenceEqual(Enumerable.Range(1, (int)Nodes).Select(other => ((uint)other, addressOf((uint)other)))))
                return false;
        }

        return true;
    }, "every node has its replicas and knows all nodes");

    private static Task JoinedAsync(NodeCluster cluster, ulong recovery) => Eventually.TrueAsync(async () =>
    {
        for (var node = 1U; node <= Nodes; node++)
        {
            if ((await ReportOfAsync(cluster, node)).Cluster.Recovery != recovery)
                return false;
        }

        return true;
    }, $"every node has joined recovery {recovery}");

    private static async Task<NodeReport> ReportOfAsync(NodeCluster cluster, uint node)
    {
        using var channel = GrpcChannel.ForAddress(cluster.PeerAddressOf(node));
        return (await new Internal.V1.Recovery.RecoveryClient(channel).ReportAsync(new ReportRequest { Node = 1 })).Report;
    }

    private static async Task<RecoverResponse> RecoverAsync(NodeCluster cluster, bool planOnly = false) =>
        await new Admin.V1.Coordinator.CoordinatorClient(cluster.ChannelOf(1)).RecoverAsync(new RecoverRequest { PlanOnly = planOnly });

    private static Task PutAsync(NodeCluster cluster) => cluster.PutAsync(new PutRequest { Key = Key, Value = Key });

    private static HashSet<string> KeysOf(CoordinatorList list) => [.. list.Entries.Select(static entry => entry.Key)];

    // As somebody with etcdctl does by mistake.
    private static async Task DeleteAsync(NodeCluster cluster)
    {
        var list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        while (list.Entries.Count > 0)
        {
            foreach (var entry in list.Entries)
                await cluster.Coordinator.CompareAndSetAsync(entry.Key, entry.ModRevision, null, 0, CancellationToken.None);
            list = await cluster.Coordinator.ListAsync(cluster.Keys.Root, CancellationToken.None);
        }
    }

    /// <summary>A coordinator that goes away after some changes.</summary>
    private sealed class CutOff(ICoordinator inner, int changes) : ICoordinator
    {
        private int _left = changes;

        public Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) => inner.GetAsync(key, cancellationToken);

        public Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) => inner.ListAsync(prefix, cancellationToken);

        public Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CancellationToken cancellationToken) =>
            _left-- > 0 ? inner.CompareAndSetAsync(key, expectedRevision, value, lease, cancellationToken) : throw new CoordinatorUnavailableException("The coordinator is gone again.");

        public Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
            CompareAndSetAsync(key, expectedRevision, value, lease, cancellationToken);

        public IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken) => inner.WatchAsync(prefix, fromRevision, cancellationToken);

        public Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) => inner.GrantLeaseAsync(timeToLive, cancellationToken);

        public Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) => inner.KeepAliveAsync(lease, cancellationToken);

        public Task RevokeAsync(long lease, CancellationToken cancellationToken) => inner.RevokeAsync(lease, cancellationToken);

        public ICoordinator Anew() => this;

        public void ContinueAs(ICoordinator anew) => inner.ContinueAs(anew);

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;
    }
}
