using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Calls that name the cluster that they are meant for, at a node and through a router.</summary>
[Trait("Turn", "6")]
public sealed class ForeignClusterTests
{
    private static readonly ByteString Key = ByteString.CopyFromUtf8("k");

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Calls_ForAnotherCluster_AreRefused(bool isRouter)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(isRouter ? router.Address : cluster.AddressOf(1));
        var (kv, shards) = (new Kv.KvClient(channel.Calls()), new Cluster.ClusterClient(channel.Calls()));
        using var first = shards.WatchShards(new WatchShardsRequest());
        Assert.True(await first.ResponseStream.MoveNext(CancellationToken.None));
        var own = first.ResponseStream.Current.ClusterId;
        var other = new Metadata { { "kvcluster-cluster", own + "0" } };

        await RefusedAsync(async () => await kv.PutAsync(new PutRequest { Key = Key }, other));
        await RefusedAsync(async () => await kv.GetAsync(new GetRequest { Key = Key }, other));
        await RefusedAsync(async () => await shards.GetStatusAsync(new GetStatusRequest(), other));
        using var scan = kv.Scan(new ScanRequest(), other);
        await RefusedAsync(() => scan.ResponseStream.MoveNext(CancellationToken.None));
        using var exchange = kv.Exchange(other);
        await RefusedAsync(() => exchange.ResponseStream.MoveNext(CancellationToken.None));
        using var watch = shards.WatchShards(new WatchShardsRequest { ClusterId = own + "0" });
        await RefusedAsync(() => watch.ResponseStream.MoveNext(CancellationToken.None));

        var named = new Metadata { { "kvcluster-cluster", own } };
        Assert.False((await kv.GetAsync(new GetRequest { Key = Key }, named)).Found);
        using var expected = shards.WatchShards(new WatchShardsRequest { ClusterId = own }, named);
        Assert.True(await expected.ResponseStream.MoveNext(CancellationToken.None));
    }

    /// <summary>A node's address was given to a node of another cluster, as in Kubernetes. Its callers had not noticed yet, and wrote there.</summary>
    [Fact]
    public async Task Client_WhenAnotherClusterHasTheAddressOfItsNode_AppliesNothingThere()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(3), async time =>
        {
            await using var cluster = await NodeCluster.StartAsync(1);
            await using var other = await NodeCluster.StartAsync(1);
            var address = cluster.AddressOf(1);
            await using var client = new KvCluster.Client.KvClient(
                new KvCluster.Client.KvClientOptions { Endpoints = [address], Timeout = time, ExactlyOnce = false });
            await cluster.LeaderOfAsync(0);
            if (await Record.ExceptionAsync(() => client.PutAsync("b", "1").AsTask()) is KvCluster.Client.KvException)
                return false;
            await cluster.StopNodeAsync(1);
            await other.StopNodeAsync(1);
            await other.StartNodeAsync(other.OptionsOf(1) with { Listen = address });
            await other.LeaderOfAsync(0);
            // Many at once, because the refusal of the stream may come while some of them are being written to it.
            var failures = await Task.WhenAll(Enumerable.Range(0, 64).Select(_ => Task.Run(async () =>
            {
                var seen = new List<KvCluster.Client.KvException>();
                for (var attempt = 0; attempt < 3; attempt++)
                    seen.Add(await Assert.ThrowsAnyAsync<KvCluster.Client.KvException>(() => client.PutAsync("a", "2").AsTask()));
                return seen;
            })));
            Assert.False((await other.KvOf(1).GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8("a") })).Found);
            // The time may have passed between a write to the stream and its refusal.
            return failures.SelectMany(static seen => seen).All(
                static failure => failure is KvCluster.Client.KvUnavailableException { Outcome: KvCluster.Client.ChangeOutcome.NotApplied });
        });
    }

    /// <summary>Operators' calls are at the port for nodes unless the node is told otherwise, and the map says where.</summary>
    [Fact]
    public async Task Admin_WithoutServeAdmin_IsServedAtThePortForNodesOnly()
    {
        await using var cluster = await NodeCluster.StartWithoutAdminAsync(1);
        await cluster.LeaderOfAsync(0);
        using var watch = new Cluster.ClusterClient(cluster.ChannelOf(1).Calls()).WatchShards(new WatchShardsRequest());
        NodeAddress? described = null;
        while (described is null && await watch.ResponseStream.MoveNext(CancellationToken.None))
            described = watch.ResponseStream.Current.Nodes.FirstOrDefault();
        Assert.Equal(cluster.PeerAddressOf(1), described!.AdminAddress);
        var refused = await Assert.ThrowsAsync<RpcException>(async () => await cluster.AdminOf(1).CheckpointAsync(new Admin.V1.CheckpointRequest()));
        Assert.Equal(StatusCode.Unimplemented, refused.StatusCode);
        await using var client = new KvCluster.Client.KvClient(
            new KvCluster.Client.KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        Assert.Single(await client.Admin.CheckpointAsync());
    }

    /// <summary>After the first message, only what changed is sent, and the revision never decreases.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task WatchShards_AfterTheFirstMessage_SendsChangesWithRisingRevisions(bool isRouter)
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        await cluster.LeaderOfAsync(0);
        await cluster.LeaderOfAsync(1);
        await using var router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        using var channel = GrpcChannel.ForAddress(isRouter ? router.Address : cluster.AddressOf(1));
        using var watch = new Cluster.ClusterClient(channel.Calls()).WatchShards(new WatchShardsRequest());
        Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None));
        var last = watch.ResponseStream.Current;
        Assert.True(last is { Complete: true, Shards.Count: 2, Revision: > 0 }, last.ToString());

        // The followers may not be there yet.
        await Eventually.AnsweredAsync(
            async () => await cluster.AdminOf(await cluster.LeaderOfAsync(0)).TransferAsync(new Admin.V1.TransferRequest { Shard = 0 }),
            static refused => refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable);
        var epoch = last.Shards.Single(static route => route.Shard == 0).Epoch;
        ShardRoute? changed = null;
        while (changed is null || changed.Epoch <= epoch)
        {
            Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None));
            var next = watch.ResponseStream.Current;
            Assert.False(next.Complete);
            Assert.True(next.Shards.Count + next.Nodes.Count > 0, "an empty message");
            Assert.True(next.Revision >= last.Revision, $"revision {next.Revision} after {last.Revision}");
            last = next;
            changed = next.Shards.FirstOrDefault(static route => route.Shard == 0) ?? changed;
        }
    }

    private static async Task RefusedAsync(Func<Task> call)
    {
        var info = await Refusal.ExpectAsync(call, StatusCode.FailedPrecondition, "FOREIGN_CLUSTER");
        Assert.Equal("no", info.Metadata["applied"]);
    }
}
