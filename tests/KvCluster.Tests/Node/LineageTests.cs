using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.V1;
using WriteRequest = KvCluster.V1.WriteRequest;

namespace KvCluster.Tests.Node;

/// <summary>The history of a cluster's data has a name, which answers carry, and another one is refused by that name.</summary>
public sealed class LineageTests
{
    private static readonly ByteString Key = ByteString.CopyFromUtf8("k");

    [Fact]
    public async Task Answers_CarryTheLineageOfTheRecords()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var lineage = Lineage.Read((await ClusterRecordAsync(cluster)).Lineage);
        Assert.NotEqual(Lineage.None, lineage);
        Assert.Equal(lineage, Lineage.Read((await cluster.RecordAsync()).Lineage));
        var kv = cluster.KvOf(1);
        List<Position> positions =
        [
            (await cluster.PutAsync(new PutRequest { Key = Key, Value = Key })).Position,
            (await kv.WriteAsync(new WriteRequest { Operations = { new V1.Operation { Put = new PutOperation { Key = Key } } } })).Position,
            (await kv.GetAsync(new GetRequest { Key = Key })).Position,
            (await kv.GetAsync(new GetRequest { Key = ByteString.CopyFromUtf8("absent"), Read = new ReadOptions { Mode = ReadMode.Stale } })).Position,
            (await kv.GetManyAsync(new GetManyRequest { Keys = { Key } })).Entries.Single().Position,
            (await kv.OpenSessionAsync(new OpenSessionRequest { Key = Key })).Position,
        ];
        using var scan = kv.Scan(new ScanRequest());
        Assert.True(await scan.ResponseStream.MoveNext(CancellationToken.None));
        positions.Add(scan.ResponseStream.Current.Position);
        positions.Add((await kv.DeleteAsync(new DeleteRequest { Key = Key })).Position);
        Assert.All(positions, position => Assert.Equal(lineage.Head, position.Lineage));
        using var watch = new Cluster.ClusterClient(cluster.ChannelOf(1).Calls()).WatchShards(new WatchShardsRequest());
        Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None));
        Assert.Equal(lineage.ToByteString(), watch.ResponseStream.Current.Lineage);
    }

    [Fact]
    public async Task Change_WithARequestIdOfAnotherLineage_IsRefusedAsOfUnknownOutcome()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        var kv = cluster.KvOf(1);
        var opened = await kv.OpenSessionAsync(new OpenSessionRequest { Key = Key });
        RequestId Id(ulong lineage) => new() { Session = opened.Session, Sequence = 1, LowestOpen = 1, Lineage = lineage };

        var refused = await RefusalAsync(async () => await kv.PutAsync(new PutRequest { Key = Key, RequestId = Id(opened.Position.Lineage + 1) }));
        Assert.Equal((StatusCode.FailedPrecondition, "LINEAGE_CHANGED", "unknown"), refused);
        refused = await RefusalAsync(async () => await kv.WriteAsync(new WriteRequest { Operations =
            { new V1.Operation { Delete = new DeleteOperation { Key = Key } } }, RequestId = Id(opened.Position.Lineage + 1) }));
        Assert.Equal((StatusCode.FailedPrecondition, "LINEAGE_CHANGED", "unknown"), refused);
        Assert.False((await kv.GetAsync(new GetRequest { Key = Key })).Found);
        // Its own is accepted, and so is none.
        var put = await kv.PutAsync(new PutRequest { Key = Key, RequestId = Id(opened.Position.Lineage) });
        Assert.Equal(put.Position, (await kv.PutAsync(new PutRequest { Key = Key, RequestId = Id(0) })).Position);
    }

    [Fact]
    public async Task SessionRead_WithAPositionOfAnotherLineage_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var seen = (await cluster.PutAsync(new PutRequest { Key = Key, Value = Key })).Position;
        var kv = cluster.KvOf(1);
        ReadOptions Options(ulong lineage, uint shard = 0) =>
            new() { Mode = ReadMode.Session, Seen = { new Position { Shard = shard, Etag = seen.Etag, Lineage = lineage } } };

        var expected = (StatusCode.FailedPrecondition, "LINEAGE_CHANGED", "no");
        Assert.Equal(expected, await RefusalAsync(async () => await kv.GetAsync(new GetRequest { Key = Key, Read = Options(seen.Lineage ^ 1) })));
        Assert.Equal(expected, await RefusalAsync(async () => await kv.GetManyAsync(new GetManyRequest { Keys = { Key }, Read = Options(seen.Lineage ^ 1) })));
        using var scan = kv.Scan(new ScanRequest { Read = Options(seen.Lineage ^ 1) });
        Assert.Equal(expected, await RefusalAsync(() => scan.ResponseStream.MoveNext(CancellationToken.None)));
        foreach (var accepted in (ReadOptions[])[Options(seen.Lineage), Options(0), Options(seen.Lineage ^ 1, shard: 7)])
            Assert.True((await kv.GetAsync(new GetRequest { Key = Key, Read = accepted })).Found);
    }

    [Fact]
    public async Task Client_WithAPositionOfAnotherLineage_LearnsOfItOnceAndGoesOn()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        client.Observe(new ShardPosition(0, new KvCluster.Etag(1, 1)) { Lineage = 1 });
        var put = await client.PutAsync("k", "v");
        Assert.NotEqual(0u, put.Position.Lineage);
        var changed = await Assert.ThrowsAsync<KvLineageChangedException>(() => client.GetAsync("k", KvReadMode.Session).AsTask());
        Assert.Equal(("LINEAGE_CHANGED", ChangeOutcome.NotApplied), (changed.Reason, changed.Outcome));
        Assert.True((await client.GetAsync("k", KvReadMode.Session)).Found);
    }

    [Fact]
    public async Task Start_WithADirectoryOfAnotherLineage_IsRefusedByName()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        var before = await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(before.Value!);
        record.Lineage = Lineage.Create().ToByteString();
        await cluster.Coordinator.CompareAndSetAsync(cluster.Keys.Cluster, before.ModRevision, RecordText.Format(record), 0, CancellationToken.None);
        var failure = await Assert.ThrowsAsync<ForeignDirectoryException>(() => cluster.StartNodeAsync(1));
        Assert.Contains("belongs to another lineage", failure.Message, StringComparison.Ordinal);
    }

    /// <summary>All nodes create the cluster at once, as with bootstrap-nodes.</summary>
    [Fact]
    public async Task Create_ByManyAtOnce_GivesAllRecordsOneLineage()
    {
        using var directory = new TemporaryDirectory();
        await using var coordinator = KvCluster.Node.Coordination.Embedded.EmbeddedCoordinator.Open(directory.Path, TimeProvider.System);
        var created = new NewCluster([new(1)], 1, [.. Enumerable.Range(0, 9).Select(static key => (ReadOnlyMemory<byte>)new[] { (byte)('a' + key) })]);
        var made = await Task.WhenAll(
            Enumerable.Range(0, 5).Select(_ => Task.Run(() => ClusterInit.CreateAsync(coordinator, "local", created, CancellationToken.None))));
        Assert.Single(made, static won => won);
        var keys = new CoordinatorKeys("local");
        var lineage = RecordText.Parse<ClusterRecord>((await coordinator.GetAsync(keys.Cluster, CancellationToken.None)).Value!).Lineage;
        var shards = await coordinator.ListAsync(keys.Shards, CancellationToken.None);
        Assert.Equal(10, shards.Entries.Count);
        Assert.All(shards.Entries, entry => Assert.Equal(lineage, RecordText.Parse<ShardRecord>(entry.Value!).Lineage));
    }

    private static async Task<ClusterRecord> ClusterRecordAsync(NodeCluster cluster) =>
        RecordText.Parse<ClusterRecord>((await cluster.Coordinator.GetAsync(cluster.Keys.Cluster, CancellationToken.None)).Value!);

    private static async Task<(StatusCode Code, string Reason, string Applied)> RefusalAsync(Func<Task> call)
    {
        var refused = await Assert.ThrowsAsync<RpcException>(call);
        var info = refused.GetRpcStatus()!.GetDetail<ErrorInfo>()!;
        return (refused.StatusCode, info.Reason, info.Metadata["applied"]);
    }
}
