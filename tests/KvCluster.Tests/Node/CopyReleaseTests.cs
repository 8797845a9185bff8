using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Node.Telemetry;
using KvCluster.Storage.Context;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>
/// A replica that cannot be rebuilt because its disk has no room. The copy of the damaged one stood in the way for ever, and nothing but one line of level info
/// said so.
/// </summary>
public sealed class CopyReleaseTests
{
    private const int Values = 80;
    private const int ValueBytes = 8 << 10;

    // No journal reaches back to the beginning, so that a new replica needs a snapshot.
    private static readonly StoreOptions Short = new() { RetainedJournalBytes = 0, SegmentBytesMin = 64 << 10, SegmentBytesMax = 64 << 10 };

    // No disk has room for a snapshot.
    private static readonly StoreOptions Full = Short with { SnapshotRoomBytes = 1L << 60 };

    /// <summary>
    /// The room that it makes is not enough here, so that what the node says while it lacks some can be seen. Trees are compared once an hour; they are
    /// compared now because the copy waits for it.
    /// </summary>
    [Fact]
    public async Task Copy_OfARemovedReplica_GivesWayWhenAMajorityHasAllOfIt()
    {
        await using var cluster = await NodeCluster.StartAsync(3, NodeCluster.Steady, Short);
        var (bad, before) = await LoseOneAsync(cluster);
        await Eventually.TrueAsync(() => LacksSpaceAsync(cluster, bad), "kv status says that the replica cannot be rebuilt");
        await Eventually.TrueAsync(() => Impaired(cluster, bad) > 0, "its disk counts as full");
        await Eventually.TrueAsync(() => !Directory.Exists(CopyOf(cluster, bad)), "the copy gives way");
        await Eventually.TrueAsync(() => LacksSpaceAsync(cluster, bad), "it still lacks room");
        Assert.DoesNotContain((await cluster.RecordAsync()).Replicas, replica => replica.Node == bad && !replica.Learner);
        await cluster.StopNodeAsync(bad);
        await cluster.StartNodeAsync(bad);
        await RebuiltAsync(cluster, bad, before);
        await Eventually.TrueAsync(() => Impaired(cluster, bad) == 0, "its disk no longer counts as full");
    }

    /// <summary>Without equal digests a majority might have a tree in which something is missing that the copy has.</summary>
    [Fact]
    [Trait("Turn", "6")]
    public async Task Copy_WhileTreesAreNotCompared_IsKeptAndTheReasonNamed()
    {
        await using var cluster = await NodeCluster.StartAsync(3, NodeCluster.Steady with { DigestIntervalUs = 0 }, Short);
        var (bad, _) = await LoseOneAsync(cluster);
        await KeptAsync(cluster, bad, "were not found equal");
    }

    /// <summary>A copy that says nothing of how far it reached may have the newest data there is.</summary>
    [Fact]
    [Trait("Turn", "6")]
    public async Task Copy_WhoseNewestRecordIsUnknown_IsKeptAndTheReasonNamed()
    {
        await using var cluster = await NodeCluster.StartAsync(3, NodeCluster.Steady, Short);
        var (bad, _) = await LoseOneAsync(cluster, static shard => File.WriteAllBytes(Path.Combine(shard, "control"), new byte[8192]));
        await KeptAsync(cluster, bad, "cannot be determined");
    }

    // Fills the shard, and damages or quarantines the replica of a node whose disk has no room for another one.
    private static async Task<(uint Node, ShardRecord Before)> LoseOneAsync(NodeCluster cluster, Action<string>? damage = null)
    {
        var leader = await cluster.SettledLeaderAsync();
        var bad = leader == 1 ? 2u : 1u;
        var value = new byte[ValueBytes];
        for (var key = 0; key < Values; key++)
        {
            Random.Shared.NextBytes(value);
            await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8($"k{key:D3}"), Value = ByteString.CopyFrom(value) });
        }
        // Twice, because the older of the two meta pages still needs the journal.
        for (var round = 0; round < 2; round++)
        {
            await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("between"), Value = ByteString.CopyFromUtf8("two checkpoints") });
            foreach (var node in (uint[])[1, 2, 3])
                await cluster.AdminOf(node).CheckpointAsync(new CheckpointRequest());
        }
        await cluster.FollowedAsync();
        var before = await cluster.RecordAsync();
        await cluster.StopNodeAsync(bad);
        damage?.Invoke(Path.Combine(cluster.DirectoryOf(bad), "shards", "0"));
        await cluster.StartNodeAsync(cluster.OptionsOf(bad) with { Storage = Full });
        if (damage is null)
        {
            await cluster.FollowedAsync();
            await Eventually.AnsweredAsync(
                async () => await cluster.AdminOf(bad).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = bad, Reason = "a test does not believe it" }),
                // It is not open yet, or another replica was silent for a moment.
                static refused => refused.StatusCode is StatusCode.NotFound or StatusCode.FailedPrecondition);
        }
        return (bad, before);
    }

    private static async Task KeptAsync(NodeCluster cluster, uint node, string reason)
    {
        var kept = "";
        await Eventually.TrueAsync(
            async () => (kept = (await cluster.AdminOf(node).ExamineAsync(new ExamineRequest())).Nodes.Single().Aside.SingleOrDefault()?.KeptBecause ?? "")
                .Contains(reason, StringComparison.Ordinal),
            $"the copy is kept because '{reason}'");
        Assert.True(Directory.Exists(CopyOf(cluster, node)));
        await Eventually.TrueAsync(() => LacksSpaceAsync(cluster, node), "kv status says that the replica cannot be rebuilt");
    }

    private static string CopyOf(NodeCluster cluster, uint node) => Path.Combine(cluster.DirectoryOf(node), "aside", "0");

    private static async Task<bool> LacksSpaceAsync(NodeCluster cluster, uint node) =>
        (await cluster.StatusOfAsync(node)).Replicas is [{ LacksSpace.Length: > 0 }];

    // Replicas whose disk counts as full, by what the metric shows.
    private static int Impaired(NodeCluster cluster, uint node) =>
        cluster.ShardsOf(node).All.Count(static shard => shard.LacksRoom is not null && MeasuredOf(shard).Disk == DiskState.Full);

    private static MeasuredReplica MeasuredOf(HostedShard shard)
    {
        var round = new MeasuringRound(1);
        shard.Measure(measured => round.Take(0, measured));
        return round.All.Result[0];
    }

    private static async Task RebuiltAsync(NodeCluster cluster, uint node, ShardRecord before)
    {
        var old = before.Replicas.Single(replica => replica.Node == node).Replica;
        await Eventually.TrueAsync(
            async () => (await cluster.RecordAsync()).Replicas.Any(
                replica => replica.Node == node && replica.Replica != old && replica is { Learner: false, Created: true }),
            $"node {node} has a new voter");
    }
}
