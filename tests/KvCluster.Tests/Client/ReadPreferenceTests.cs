using System.Text;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Client;

/// <summary>Reads that any replica may serve, as the client library and the router send them: to which replica, with which options, and where next.</summary>
public sealed class ReadPreferenceTests
{
    [Fact]
    public async Task Get_AtAnyReplica_IsSpreadOverAllOfThem()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect(KvReadMode.Replica);
        await client.PutAsync("a", "1");
        await ReachAllAsync(cluster, client);
        for (var read = 0; read < 30; read++)
            Assert.Equal("1", Text((await client.GetAsync("a")).Value));
        Assert.All(cluster.Nodes, node => Assert.Equal(10, Gets(node).Count()));
        Assert.Equal("1", Text((await client.GetAsync("a", KvReadMode.Leader)).Value));
        Assert.Null(Gets(cluster.Nodes[0]).Last().Read);
    }

    [Fact]
    public async Task Get_OfASession_SendsTheLastPositionsSeen()
    {
        await using var cluster = await FakeCluster.StartAsync(3, "m");
        await using var client = cluster.Connect();
        await client.PutAsync("z", "1");
        var put = (await client.PutAsync("a", "1")).Position;
        await client.GetAsync("a", KvReadMode.Session);
        Assert.Equal(put, SeenBy(cluster));
        client.Observe(new ShardPosition(put.Shard, new KvCluster.Etag(1, 1)));
        await client.GetAsync("a", KvReadMode.Session);
        Assert.Equal(put, SeenBy(cluster));
        var later = new ShardPosition(put.Shard, new KvCluster.Etag(9, 1));
        client.Observe(later);
        await client.GetAsync("a", KvReadMode.Session);
        Assert.Equal(later, SeenBy(cluster));
    }

    [Fact]
    public async Task Get_AtAReplicaThatIsBehind_IsRepeatedAtTheLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        await ReachAllAsync(cluster, client);
        foreach (var node in cluster.Nodes.Skip(1))
            node.Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.DeadlineExceeded, "REPLICA_BEHIND"));
        for (var read = 0; read < 6; read++)
            Assert.Equal("1", Text((await client.GetAsync("a", KvReadMode.Session)).Value));
        Assert.Equal(4, cluster.Nodes.Skip(1).Sum(node => node.Calls.Count));
    }

    [Fact]
    public async Task Get_AtASilentReplica_IsRepeatedAtTheLeaderLongBeforeItsDeadline()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        foreach (var node in cluster.Nodes.Skip(1))
            node.Script = _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(3), async time =>
        {
            foreach (var node in cluster.Nodes)
                node.Calls.Clear();
            await using var impatient = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            try
            {
                for (var read = 0; read < 3; read++)
                    Assert.Equal("1", Text((await impatient.GetAsync("a", KvReadMode.Stale)).Value));
            }
            catch (KvUnavailableException)
            {
                return false;
            }
            // If there were more calls, the leader also took longer than the time for one replica, and the read moved on.
            return cluster.Nodes.Skip(1).Sum(node => node.Calls.Count) == 2;
        });
    }

    [Fact]
    public async Task Get_SentToASecondReplica_IsCancelledAtTheOneThatIsSilent()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect(KvReadMode.Stale);
        await client.PutAsync("a", "1");
        await ReachAllAsync(cluster, client);
        var arrived = 0;
        foreach (var node in cluster.Nodes)
            node.Script = _ => Task.FromResult(Interlocked.Increment(ref arrived) == 1 ? FakeNode.Silence : null);
        Assert.Equal("1", Text((await client.GetAsync("a", new KvGetOptions { HedgeAfter = TimeSpan.FromMilliseconds(1) })).Value));
        await Eventually.TrueAsync(() => cluster.Nodes.Any(static node => !node.Cancelled.IsEmpty), "the silent node hears that nobody waits");
        Assert.Equal(1, cluster.Nodes.Max(static node => node.Calls.Count));
        Assert.Equal(2, cluster.Nodes.Sum(static node => node.Calls.Count));
        var silent = Assert.Single(cluster.Nodes, static node => !node.Cancelled.IsEmpty);
        Assert.Equal(silent.Calls.Single().Id, silent.Cancelled.Single());
    }

    [Fact]
    public async Task Get_NoReplicaCatchesUpInTime_ReportsIt()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        foreach (var node in cluster.Nodes)
            node.Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.DeadlineExceeded, "REPLICA_BEHIND"));
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a", KvReadMode.Session).AsTask());
            // Otherwise the deadline passed before the first answer, or before the answer to a later attempt.
            return failure.Reason == "REPLICA_BEHIND";
        });
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task GetManyAndScan_AtAnyReplica_AlsoUseFollowers(bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(3, "m");
        await using var router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = [cluster.Endpoint], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        await using var client = new KvClient(new KvClientOptions
        {
            Endpoints = [gateway ? router.Address : cluster.Endpoint], Gateway = gateway, Read = KvReadMode.Session, Timeout = Eventually.Limit
        });
        await client.PutAsync("a", "1");
        await client.PutAsync("z", "2");
        // Node 3 leads no shard. It is left out while the connection to it takes long, as where the machine stalls.
        await Eventually.TrueAsync(async () =>
        {
            Assert.Equal("1", Text((await client.GetAsync("a")).Value));
            var many = await client.GetManyAsync([Encoding.UTF8.GetBytes("z"), Encoding.UTF8.GetBytes("a")]);
            Assert.Equal(["2", "1"], many.Select(entry => Text(entry.Value)));
            Assert.Equal(2, await client.CountAsync(default));
            Assert.Equal(2, await client.ScanAsync(new KvScan()).CountAsync());
            return Gets(cluster.Nodes[2]).Any(static get => get.Read.Mode == ReadMode.Session && get.Read.Seen.Count > 0)
                && cluster.Nodes[2].Calls.Any(static call => call.Method == Method.GetMany)
                && cluster.Nodes[2].Calls.Any(static call => call.Method == Method.Count)
                && cluster.Nodes[2].Scans.Any(static scan => scan.Read.Mode == ReadMode.Session && scan.Read.Seen.Count > 0);
        }, "node 3 has served reads of each kind");
    }

    // The reads that are counted must find every connection open, because a node that is slow to connect is left out for a while.
    private static async Task ReachAllAsync(FakeCluster cluster, KvClient client)
    {
        await Eventually.TrueAsync(
            () =>
            {
                client.GetAsync("a", KvReadMode.Stale).AsTask().Wait();
                return cluster.Nodes.All(node => Gets(node).Any());
            },
            "each node is reached");
        foreach (var node in cluster.Nodes)
            node.Calls.Clear();
    }

    private static string Text(ReadOnlyMemory<byte> value) => Encoding.UTF8.GetString(value.Span);

    private static IEnumerable<GetRequest> Gets(FakeNode node) =>
        node.Calls.Where(call => call.Method == Method.Get).Select(call => GetRequest.Parser.ParseFrom(call.Request));

    // The position that the newest get, wherever it arrived, had to reflect.
    private static ShardPosition SeenBy(FakeCluster cluster)
    {
        var get = Assert.Single(cluster.Nodes.SelectMany(Gets));
        foreach (var node in cluster.Nodes)
            node.Calls.Clear();
        var seen = Assert.Single(get.Read.Seen);
        return new ShardPosition(seen.Shard, new KvCluster.Etag(seen.Etag.Epoch, seen.Etag.Change));
    }
}
