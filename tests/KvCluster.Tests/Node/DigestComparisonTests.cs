using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Replication.Protocol;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Trees that differ although every checksum is right. The replicas detect this by themselves, and the differing one is rebuilt.</summary>
public sealed class DigestComparisonTests
{
    private static readonly ReplicationOptions _often = new() { DigestIntervalUs = 500_000 };

    [Fact]
    public async Task Comparison_OfEqualTrees_IsShownAndStopsNoReplica()
    {
        await using var cluster = await StartAsync(_often);
        var before = await cluster.RecordAsync();
        await WriteUntilAsync(cluster, () => ComparedAsync(cluster, before));
        Assert.Equal(IdsOf(before), IdsOf(await cluster.RecordAsync()));
    }

    [Fact]
    [Trait("Turn", "1")]
    public async Task SilentlyChangedValue_InAFollower_IsDetectedAndTheReplicaRebuiltDuringWrites()
    {
        await using var cluster = await StartAsync(new ReplicationOptions());
        var bad = await cluster.LeaderOfAsync(0) == 1 ? 2u : 1u;
        await StopAndChangeAsync(cluster, bad);
        await cluster.StartNodeAsync(bad);
        // The changed value is served, and nothing else would detect it.
        await Eventually.TrueAsync(() => AppliedAtAsync(cluster, bad).Result == "wrong-7", "the replica serves the changed value");
        var before = await cluster.RecordAsync();
        cluster.Replication = _often;
        foreach (var node in (uint[])[1, 2, 3])
        {
            await cluster.StopNodeAsync(node);
            await cluster.StartNodeAsync(node);
        }

        await WriteUntilAsync(cluster, () => RebuiltAsync(cluster, bad, before));
        await WriteUntilAsync(cluster, () => ComparedAsync(cluster, null));
        Assert.True(Directory.Exists(Path.Combine(cluster.DirectoryOf(bad), "aside", "0")), "the quarantined replica is set aside");
        await Eventually.TrueAsync(() => AppliedAtAsync(cluster, bad).Result == "value-7", "the new replica has the value that was written");
    }

    [Fact]
    public async Task SilentlyChangedValue_InTheLeader_IsDetectedAndItTransfersAndIsRebuilt()
    {
        await using var cluster = await StartAsync(NodeCluster.Steady);
        var bad = await cluster.LeaderOfAsync(0);
        await StopAndChangeAsync(cluster, bad);
        // The others compare only when asked to: their own interval is an hour.
        cluster.Replication = NodeCluster.Steady with { DigestIntervalUs = _often.DigestIntervalUs };
        await cluster.StartNodeAsync(bad);
        var before = await cluster.RecordAsync();
        // It detects the difference only while it leads. If another was elected first, try again.
        await WriteUntilAsync(cluster, async () =>
        {
            if (await RebuiltAsync(cluster, bad, before))
                return true;
            await LeadAsync(cluster, bad);
            return false;
        });
        await Eventually.TrueAsync(() => AppliedAtAsync(cluster, bad).Result == "value-7", "the new replica has the value that was written");
    }

    private static async Task<NodeCluster> StartAsync(ReplicationOptions replication)
    {
        var cluster = await NodeCluster.StartAsync(3, replication);
        for (var key = 0; key < 20; key++)
            await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8($"k{key:D2}"), Value = ByteString.CopyFromUtf8($"value-{key}") });
        return cluster;
    }

    private static async Task StopAndChangeAsync(NodeCluster cluster, uint node)
    {
        // A follower that lags may have applied everything it has, so the value must be there as well.
        await Eventually.TrueAsync(
            () => AppliedAtAsync(cluster, node).Result == "value-7"
                && cluster.StatusOfAsync(node).Result.Replicas.SingleOrDefault() is { Applied: not null } replica && replica.Applied.Equals(replica.Last),
            "everything is applied");
        await cluster.AdminOf(node).CheckpointAsync(new CheckpointRequest());
        await cluster.StopNodeAsync(node);
        SilentDamage.ChangeValue(Path.Combine(cluster.DirectoryOf(node), "shards", "0"), "value-7"u8, "wrong-7"u8);
    }

    // Everything acknowledged meanwhile must be there at the end.
    private static async Task WriteUntilAsync(NodeCluster cluster, Func<Task<bool>> condition)
    {
        var acknowledged = new List<string>();
        await Eventually.TrueAsync(
            () =>
            {
                var key = $"w{acknowledged.Count:D6}";
                cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8(key) }).Wait();
                acknowledged.Add(key);
                return condition().Result;
            },
            "what is waited for");
        foreach (var key in acknowledged)
        {
            string? found = null;
            await Eventually.TrueAsync(
                () => (found = ReadAsync(cluster, cluster.LeaderOfAsync(0).Result, key, ReadMode.Leader).Result) is not null, $"an answer for {key}");
            Assert.Equal(key, found);
        }
    }

    // Requests a transfer if another node leads.
    private static async Task LeadAsync(NodeCluster cluster, uint node)
    {
        var leader = await cluster.LeaderOfAsync(0);
        if (leader == node)
            return;
        try
        {
            await cluster.AdminOf(leader).TransferAsync(new TransferRequest { Shard = 0, ToNode = node });
        }
        catch (RpcException failure) when (failure.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
        {
            // The node has not caught up yet or is being rebuilt.
        }
    }

    private static async Task<bool> RebuiltAsync(NodeCluster cluster, uint node, ShardRecord before)
    {
        var old = before.Replicas.Single(replica => replica.Node == node).Replica;
        var record = await cluster.RecordAsync();
        return record.Removed.Contains(old) && record.Replicas.Any(replica => replica.Node == node && replica is { Learner: false, Created: true });
    }

    private static IEnumerable<ulong> IdsOf(ShardRecord record) => record.Replicas.Select(replica => replica.Replica);

    // All three have the same digest, and none was replaced meanwhile.
    private static async Task<bool> ComparedAsync(NodeCluster cluster, ShardRecord? before)
    {
        var leader = await cluster.LeaderOfAsync(0);
        var detail = (await cluster.StatusOfAsync(leader, shard: 0)).Replicas.SingleOrDefault()?.Detail;
        return detail?.Compared is { Replicas: 3 }
            && (before is null || IdsOf(before).SequenceEqual(detail.Record.Replicas.Select(replica => replica.Replica)));
    }

    private static Task<string?> AppliedAtAsync(NodeCluster cluster, uint node) => ReadAsync(cluster, node, "k07", ReadMode.Stale);

    // Null if the replica is not open yet or does not lead.
    private static async Task<string?> ReadAsync(NodeCluster cluster, uint node, string key, ReadMode mode)
    {
        try
        {
            var request = new GetRequest { Key = ByteString.CopyFromUtf8(key), Read = new ReadOptions { Mode = mode } };
            return (await cluster.KvOf(node).GetAsync(request)).Value.ToStringUtf8();
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable)
        {
            return null;
        }
    }
}
