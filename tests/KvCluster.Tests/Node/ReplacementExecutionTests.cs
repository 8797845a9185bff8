using Google.Protobuf;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>
/// Replicas that are replaced on request, because they are lost, or because they are quarantined. Each new one has a new id and the same content.
/// </summary>
[Trait("Turn", "6")]
public sealed class ReplacementExecutionTests
{
    [Fact]
    public async Task Quarantine_OfAReplica_IsRebuiltUnderANewIdWithTheSameContent()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        await cluster.FollowedAsync();
        var bad = OtherThan(await cluster.SettledLeaderAsync());
        var before = await cluster.RecordAsync();
        await Eventually.AnsweredAsync(
            () => cluster.AdminOf(bad).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = bad, Reason = "a test does not believe it" }).ResponseAsync,
            // Another replica may have been silent for a moment.
            static refused => ReasonOf(refused) == "NOT_QUARANTINED");
        await RebuiltAsync(cluster, bad, before);
        Assert.True(Directory.Exists(Path.Combine(cluster.DirectoryOf(bad), "aside", "0")), "the quarantined replica is set aside");
    }

    [Fact]
    public async Task Quarantine_WithoutPeersToRebuildFrom_OutlastsARestartUntilThereAreSome()
    {
        await using var cluster = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await FillAsync(cluster);
        var before = await cluster.RecordAsync();
        foreach (var other in (uint[])[2, 3])
            await cluster.StopNodeAsync(other);
        await cluster.AdminOf(1).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = 1, Reason = "a test does not believe it", Force = true });
        Assert.Equal(Role.Failed, (await cluster.StatusOfAsync(1)).Replicas.Single().Role);
        for (var restart = 0; restart < 2; restart++)
        {
            await cluster.StopNodeAsync(1);
            await cluster.StartNodeAsync(1);
            ReplicaStatus? status = null;
            // The node reports no replicas until it has read which ones it has.
            await Eventually.TrueAsync(
                () => (status = cluster.StatusOfAsync(1).Result.Replicas.SingleOrDefault()) is { Role: not Role.Opening }, "the replica has a status");
            Assert.Equal(Role.Failed, status!.Role);
            Assert.EndsWith("a test does not believe it.", status.Failure, StringComparison.Ordinal);
        }
        foreach (var other in (uint[])[2, 3])
            await cluster.StartNodeAsync(other);
        await RebuiltAsync(cluster, 1, before);
    }

    /// <summary>
    /// Two calls within a second, at two of three nodes, took a shard down for good: both replicas marked their directories, and the third found no
    /// majority to replace them.
    /// </summary>
    [Fact]
    public async Task Quarantine_OfTwoReplicasOfThree_IsRefusedForTheSecond()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        await cluster.FollowedAsync();
        var refusals = await Task.WhenAll(((uint[])[1, 2, 3]).Select(async node =>
        {
            try
            {
                await cluster.AdminOf(node).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = node, Reason = "a test" });
                return null;
            }
            catch (RpcException refused)
            {
                return refused;
            }
        }));
        Assert.True(refusals.Count(refused => refused is null) <= 1, "more than one replica of three was taken out of service");
        Assert.All(refusals.OfType<RpcException>(), refused => Assert.Equal(
            (StatusCode.FailedPrecondition, "NOT_QUARANTINED"), (refused.StatusCode, ReasonOf(refused))));
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("after"), Value = ByteString.CopyFromUtf8("1") });
    }

    [Fact]
    public async Task Quarantine_WhileAnotherReplicaIsDown_IsRefusedUnlessForced()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        await cluster.FollowedAsync();
        var leader = await cluster.LeaderOfAsync(0);
        var others = new[] { 1u, 2u, 3u }.Where(node => node != leader).ToArray();
        await cluster.StopNodeAsync(others[0]);
        foreach (var node in (uint[])[leader, others[1]])
        {
            await Eventually.TrueAsync(
                () => RefusalOf(node, force: false) is { } refused && ReasonOf(refused) == "NOT_QUARANTINED", $"node {node} keeps its replica");
            Assert.NotEqual(Role.Failed, (await cluster.StatusOfAsync(node)).Replicas.Single().Role);
        }
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("still"), Value = ByteString.CopyFromUtf8("1") });
        Assert.Null(RefusalOf(others[1], force: true));
        Assert.Equal(Role.Failed, (await cluster.StatusOfAsync(others[1])).Replicas.Single().Role);

        RpcException? RefusalOf(uint node, bool force)
        {
            try
            {
                cluster.AdminOf(node).Quarantine(new QuarantineRequest { Shard = 0, Node = node, Reason = "a test", Force = force });
                return null;
            }
            catch (RpcException refused)
            {
                return refused;
            }
        }
    }

    [Fact]
    public async Task Quarantine_WithTooLongAReason_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var refused = await Assert.ThrowsAsync<RpcException>(async () =>
            await cluster.AdminOf(1).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = 1, Reason = new string('x', 1_001), Force = true }));
        Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), (refused.StatusCode, ReasonOf(refused)));
    }

    /// <summary>A reason with a line break and an escape sequence was stored, and cleared the screen of everyone who asked for the status.</summary>
    [Theory]
    [InlineData("a slip\nnode 2: all is well")]
    [InlineData("\u001b[2J")]
    [InlineData("\u009b2J")]
    [InlineData("\u202elanretni")]
    public async Task Quarantine_WithAReasonThatIsNotOneLine_IsRefused(string reason)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        var refused = await Assert.ThrowsAsync<RpcException>(async () =>
            await cluster.AdminOf(1).QuarantineAsync(new QuarantineRequest { Shard = 0, Node = 1, Reason = reason, Force = true }));
        Assert.Equal((StatusCode.InvalidArgument, "BAD_REQUEST"), (refused.StatusCode, ReasonOf(refused)));
        Assert.Contains("control character", refused.Status.Detail, StringComparison.Ordinal);
        Assert.Equal(Role.Leader, (await cluster.StatusOfAsync(1)).Replicas.Single().Role);
    }

    [Fact]
    public async Task Quarantine_OfAShardThatTheNodeDoesNotHave_ReportsIt()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await cluster.AdminOf(1).QuarantineAsync(new QuarantineRequest { Node = 1, Shard = 99, Reason = "a slip" }));
        Assert.Equal((StatusCode.NotFound, "Node 1 has no replica of shard 99."), (failure.StatusCode, failure.Status.Detail));
    }

    [Fact]
    public async Task Start_WithAReplicasDirectoryMissing_RebuildsIt()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        var lost = OtherThan(await cluster.LeaderOfAsync(0));
        var before = await cluster.RecordAsync();
        await cluster.StopNodeAsync(lost);
        Directory.Delete(Path.Combine(cluster.DirectoryOf(lost), "shards", "0"), recursive: true);
        await cluster.StartNodeAsync(lost);
        await RebuiltAsync(cluster, lost, before);
    }

    [Fact]
    public async Task Replace_ByAnotherNode_MovesTheReplicaAndRetiresTheOldDirectory()
    {
        await using var cluster = await NodeCluster.StartAsync(4);
        await FillAsync(cluster);
        var before = await cluster.RecordAsync();
        var leader = await cluster.LeaderOfAsync(0);
        var from = before.Replicas.First(replica => replica.Node != leader).Node;
        var to = FourthOf(before);
        await Eventually.TrueAsync(() => ReplacedAsync(cluster, from, to).Result, $"node {to} votes in the place of node {from}");
        var after = await cluster.RecordAsync();
        Assert.Equal(
            before.Replicas.Select(replica => replica.Node).Append(to).Where(node => node != from).Order(),
            after.Replicas.Select(replica => replica.Node).Order());
        Assert.DoesNotContain(after.Replicas, replica => replica.Learner);
        await Eventually.TrueAsync(() => !Directory.Exists(Path.Combine(cluster.DirectoryOf(from), "shards", "0")), "the old directory is retired");
        var left = before.Replicas.Single(replica => replica.Node == from).Replica;
        Assert.True(
            Directory.Exists(Path.Combine(cluster.DirectoryOf(from), "retired", $"0-{left:x16}")), "the retired directory is kept until its space is needed");
        await SameContentAsync(cluster, to, await cluster.LeaderOfAsync(0));
    }

    /// <summary>
    /// The coordinator was restored from a backup made before a replica was added, with its revision raised, as etcd's own tool does it. The new
    /// replica, a voter that had acknowledged writes, had its directory deleted because the record did not name it.
    /// </summary>
    [Fact]
    public async Task Record_RestoredFromBeforeAReplicaWasAdded_RetiresNoDirectory()
    {
        await using var cluster = await NodeCluster.StartAsync(4);
        await FillAsync(cluster);
        await cluster.AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true });
        var before = await cluster.RecordAsync();
        var from = before.Replicas.First(replica => replica.Node != cluster.LeaderOfAsync(0).Result).Node;
        var to = FourthOf(before);
        await Eventually.TrueAsync(() => ReplacedAsync(cluster, from, to).Result, $"node {to} votes in the place of node {from}");
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("since"), Value = ByteString.CopyFromUtf8("1") });
        await Eventually.TrueAsync(() => !Directory.Exists(Path.Combine(cluster.DirectoryOf(from), "shards", "0")), "the old directory is retired");
        await SameContentAsync(cluster, to, await cluster.LeaderOfAsync(0));
        var newest = await cluster.Coordinator.GetAsync(cluster.Keys.Shard(new(0)), CancellationToken.None);
        Assert.Equal(SetOutcome.Won, (await cluster.Coordinator.CompareAndSetAsync(
            cluster.Keys.Shard(new(0)), newest.ModRevision, RecordText.Format(before), 0, CancellationToken.None)).Outcome);
        await Eventually.TrueAsync(
            () => cluster.StatusOfAsync(to, shard: 0).Result.Replicas is [{ Detail.Decisions: var decisions }] && decisions.Any(line => line.Alarm),
            $"node {to} raises an alarm");
        Assert.True(Directory.Exists(Path.Combine(cluster.DirectoryOf(to), "shards", "0")), "the directory of a voter was retired");
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("after"), Value = ByteString.CopyFromUtf8("1") });
        await SameContentAsync(cluster, to, await cluster.LeaderOfAsync(0));
    }

    [Fact]
    public async Task Replace_WithImpossibleArguments_ChangesNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(4);
        await FillAsync(cluster);
        var before = await cluster.RecordAsync();
        var leader = await cluster.LeaderOfAsync(0);
        var to = FourthOf(before);
        Assert.Contains("there is no node 99", await RefusalAsync(leader, 99), StringComparison.Ordinal);
        Assert.Contains("node 99 has no voter of the shard", await RefusalAsync(99, to), StringComparison.Ordinal);
        await cluster.StopNodeAsync(to);
        // Its stream may be open for some moments yet. A replacement begun then waits for a learner that nobody creates.
        await Eventually.TrueAsync(
            () => RefusalAsync(99, to).Result is var why
                && (why.Contains("there is no node", StringComparison.Ordinal) || why.Contains("is not connected", StringComparison.Ordinal)),
            "the leader knows that the node is gone");
        Assert.Equal(before.Replicas.Select(replica => replica.Replica), (await cluster.RecordAsync()).Replicas.Select(replica => replica.Replica));

        async Task<string> RefusalAsync(uint from, uint target) => (await Assert.ThrowsAsync<RpcException>(
            async () => await cluster.AdminOf(await cluster.LeaderOfAsync(0))
                .ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = from, ToNode = target }))).Status.Detail;
    }

    /// <summary>The leadership was transferred for a replacement that the next leader then refused, so writers waited for nothing.</summary>
    [Fact]
    public async Task Replace_OfTheLeadersReplicaWithImpossibleArguments_TransfersNothing()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        await cluster.FollowedAsync();
        var leader = await cluster.SettledLeaderAsync();
        await cluster.FollowedAsync();
        var others = new[] { 1u, 2u, 3u }.Where(node => node != leader).ToArray();
        var before = await cluster.RecordAsync();
        await RefusedAsync(others[0], $"node {others[0]} already has a replica of the shard");
        await RefusedAsync(null, $"node {leader} has no learner of the shard");
        await RefusedAsync(99, "there is no node 99");
        await cluster.StopNodeAsync(others[0]);
        // It takes a moment until the leader knows that the node is gone.
        await RefusedAsync(others[0], "is not connected");
        await RefusedAsync(leader, "of the 2 voters that would remain, only 1 follow closely");
        Assert.Equal((before.Epoch, before.Generation), (await cluster.RecordAsync() is var after ? (after.Epoch, after.Generation) : default));

        Task RefusedAsync(uint? to, string why) => Eventually.TrueAsync(
            async () => (await RefusalAsync(to)).Contains(why, StringComparison.Ordinal), $"the replacement is refused because {why}");

        async Task<string> RefusalAsync(uint? to)
        {
            var request = new ReplaceRequest { Shard = 0, FromNode = leader };
            if (to is { } node)
                request.ToNode = node;
            return (await Assert.ThrowsAsync<RpcException>(async () => await cluster.AdminOf(leader).ReplaceAndWaitAsync(request))).Status.Detail;
        }
    }

    /// <summary>
    /// Of several concurrent calls for the same replacement, one succeeded and the others reported failure: the learner that they waited for had
    /// become a voter, or another call had made it.
    /// </summary>
    [Fact]
    public async Task Replace_RequestedSeveralTimesAtOnce_IsDoneOnceAndAnsweredToAll()
    {
        await using var cluster = await NodeCluster.StartAsync(4);
        await FillAsync(cluster);
        await cluster.FollowedAsync();
        await cluster.AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true });
        var before = await cluster.RecordAsync();
        var leader = await cluster.SettledLeaderAsync();
        var from = before.Replicas.First(replica => replica.Node != leader);
        var to = FourthOf(before);
        await Eventually.TrueAsync(
            () => !WhyNot(99, to).Contains("no node", StringComparison.Ordinal) && !WhyNot(99, to).Contains("not connected", StringComparison.Ordinal),
            "the leader knows the node");
        var admin = cluster.AdminOf(leader);
        await Task.WhenAll(Enumerable.Range(0, 5).Select(_ => admin.ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = from.Node, ToNode = to })));
        await admin.ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = from.Node, ToNode = to });
        var after = await cluster.RecordAsync();
        Assert.Equal([from.Replica], after.Removed.Except(before.Removed));
        Assert.Equal(
            before.Replicas.Select(replica => replica.Node).Append(to).Where(node => node != from.Node).Order(),
            after.Replicas.Select(replica => replica.Node).Order());
        Assert.DoesNotContain(after.Replicas, replica => replica.Learner);

        string WhyNot(uint node, uint target) => Assert.Throws<RpcException>(
            () => cluster.AdminOf(leader).Replace(new ReplaceRequest { Shard = 0, FromNode = node, ToNode = target })).Status.Detail;
    }

    /// <summary>What remains of an interrupted replacement does not justify an additional voter.</summary>
    [Fact]
    public async Task Replace_OfANodeWithoutAVoter_DoesNotPromoteALearner()
    {
        await using var cluster = await NodeCluster.StartAsync(4);
        await FillAsync(cluster);
        var before = await cluster.RecordAsync();
        var to = FourthOf(before);
        await LeaveALearnerAsync(cluster, to);
        var why = "";
        await Eventually.TrueAsync(
            () =>
            {
                why = Assert.ThrowsAsync<RpcException>(async () => await cluster.AdminOf(await cluster.LeaderOfAsync(0))
                    .ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = 99, ToNode = to })).Result.Status.Detail;
                return cluster.RecordAsync().Result.Replicas.Any(replica => replica is { Replica: 77, Created: true });
            },
            "the learner is there");
        Assert.Contains("node 99 has no voter of the shard", why, StringComparison.Ordinal);
        Assert.Equal(before.Replicas.Count, (await cluster.RecordAsync()).Replicas.Count(replica => !replica.Learner));
    }

    [Fact]
    public async Task Replace_WithALearnerWhoseNodeIsGone_RemovesTheLearner()
    {
        await using var cluster = await NodeCluster.StartAsync(5);
        await FillAsync(cluster);
        var before = await cluster.RecordAsync();
        var free = new[] { 1u, 2u, 3u, 4u, 5u }.Where(node => before.Replicas.All(replica => replica.Node != node)).ToArray();
        await cluster.StopNodeAsync(free[0]);
        await LeaveALearnerAsync(cluster, free[0]);
        var from = before.Replicas.First(replica => replica.Node != cluster.LeaderOfAsync(0).Result).Node;
        await Eventually.TrueAsync(() => ReplacedAsync(cluster, from, free[1]).Result, $"node {free[1]} votes in the place of node {from}");
        Assert.Equal(before.Replicas.Select(replica => replica.Node).Append(free[1]).Where(node => node != from).Order(), (await cluster.RecordAsync()).Replicas
            .Select(replica => replica.Node).Order());
    }

    /// <summary>
    /// The leader died between the two steps of a rebuild, or lost the coordinator. No replica asks to be rebuilt, and the operator has paused moves.
    /// </summary>
    [Fact]
    public async Task Rebuild_InterruptedAfterTheOldReplicaWasRemoved_IsFinished()
    {
        await using var cluster = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await FillAsync(cluster);
        await cluster.AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true });
        foreach (var node in (uint[])[1, 2, 3])
            await cluster.StopNodeAsync(node);
        var before = await cluster.RecordAsync();
        var old = before.Replicas.First(replica => replica.Replica != before.Leader);
        await cluster.ChangeRecordAsync(record =>
        {
            record.Replicas.Remove(record.Replicas.Single(replica => replica.Replica == old.Replica));
            record.Removed.Add(old.Replica);
        });
        await Task.WhenAll(((uint[])[1, 2, 3]).Select(node => cluster.StartNodeAsync(node)));
        await RebuiltAsync(cluster, old.Node, before);
        Assert.Equal(3, (await cluster.RecordAsync()).Replicas.Count(replica => !replica.Learner));
    }

    [Fact]
    public async Task Learner_WhoseNodeIsGoneForGood_IsRemovedAutomatically()
    {
        await using var cluster = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await FillAsync(cluster);
        foreach (var node in (uint[])[1, 2, 3])
            await cluster.StopNodeAsync(node);
        var before = await cluster.RecordAsync();
        await cluster.ChangeRecordAsync(record => record.Replicas.Add(new ReplicaRecord { Replica = 77, Node = 9, Learner = true }));
        cluster.LearnerPatience = TimeSpan.FromSeconds(1);
        await Task.WhenAll(((uint[])[1, 2, 3]).Select(node => cluster.StartNodeAsync(node)));
        await Eventually.TrueAsync(() => cluster.RecordAsync().Result.Removed.Contains(77), "the learner is taken away");
        Assert.Equal(before.Replicas.Select(replica => replica.Replica), (await cluster.RecordAsync()).Replicas.Select(replica => replica.Replica));
    }

    [Fact]
    public async Task Replace_InPlaceWithoutAMajorityOfOthers_LeavesTheHealthyReplica()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        await FillAsync(cluster);
        var leader = await cluster.SettledLeaderAsync();
        var others = new[] { 1u, 2u, 3u }.Where(node => node != leader).ToArray();
        var before = await cluster.RecordAsync();
        await cluster.StopNodeAsync(others[0]);
        await Eventually.TrueAsync(
            () => RefusalAsync(99, others[0]).Result.Contains("is not connected", StringComparison.Ordinal), "the leader knows that the node is gone");
        await Eventually.TrueAsync(
            () => RefusalAsync(others[1], others[1]).Result.Contains("of the 2 voters that would remain, only 1 follow closely", StringComparison.Ordinal),
            "the replacement is refused for want of voters");
        Assert.Equal(before.Replicas.Select(replica => replica.Replica), (await cluster.RecordAsync()).Replicas.Select(replica => replica.Replica));

        async Task<string> RefusalAsync(uint from, uint to) => (await Assert.ThrowsAsync<RpcException>(
            async () => await cluster.AdminOf(leader).ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = from, ToNode = to }))).Status.Detail;
    }

    private static string ReasonOf(RpcException refused) => refused.GetRpcStatus()!.GetDetail<Google.Rpc.ErrorInfo>()!.Reason;

    // As an interrupted change does. Nobody moves replicas meanwhile.
    private static async Task LeaveALearnerAsync(NodeCluster cluster, uint node)
    {
        await cluster.AdminOf(await cluster.LeaderOfAsync(0)).PlaceAsync(new PlaceRequest { Paused = true });
        await cluster.ChangeRecordAsync(record => record.Replicas.Add(new ReplicaRecord { Replica = 77, Node = node, Learner = true }));
        await Eventually.TrueAsync(
            () => cluster.StatusOfAsync(cluster.LeaderOfAsync(0).Result, shard: 0).Result.Replicas.Single().Detail.Followers.Any(
                follower => follower.Replica == 77),
            "the leader knows of the learner");
    }

    // As an operator does: asks the leader, and asks again if the leader changed or a replica was slow for a moment.
    private static async Task<bool> ReplacedAsync(NodeCluster cluster, uint from, uint to)
    {
        try
        {
            if ((await cluster.RecordAsync()).Replicas.Any(replica => replica.Node == from))
                await cluster.AdminOf(await cluster.LeaderOfAsync(0))
                    .ReplaceAndWaitAsync(new ReplaceRequest { Shard = 0, FromNode = from, ToNode = to }, deadline: DateTime.UtcNow + Eventually.Limit);
            return true;
        }
        catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
        {
            return false;
        }
    }

    private static uint OtherThan(uint node) => node == 1 ? 2u : 1u;

    // The one of four nodes without a replica.
    private static uint FourthOf(ShardRecord record) => new[] { 1u, 2u, 3u, 4u }.Single(node => record.Replicas.All(replica => replica.Node != node));

    private static async Task FillAsync(NodeCluster cluster)
    {
        for (var key = 0; key < 20; key++)
            await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8($"k{key}"), Value = ByteString.CopyFromUtf8($"v{key}") });
    }

    private static async Task RebuiltAsync(NodeCluster cluster, uint node, ShardRecord before)
    {
        var old = before.Replicas.Single(replica => replica.Node == node).Replica;
        await Eventually.TrueAsync(
            () => cluster.RecordAsync().Result.Replicas
                .Any(replica => replica.Node == node && replica.Replica != old && replica is { Learner: false, Created: true }),
            $"node {node} has a new voter");
        Assert.Contains(old, (await cluster.RecordAsync()).Removed);
        await cluster.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8("after"), Value = ByteString.CopyFromUtf8("1") });
        await SameContentAsync(cluster, node, await cluster.LeaderOfAsync(0));
    }

    private static Task SameContentAsync(NodeCluster cluster, uint node, uint leader) => Eventually.TrueAsync(
        () => DigestOf(cluster, node) is { IsEmpty: false } digest && digest == DigestOf(cluster, leader), $"nodes {node} and {leader} hold the same");

    private static ByteString? DigestOf(NodeCluster cluster, uint node) => cluster.StatusOfAsync(node, digest: true).Result.Replicas.SingleOrDefault()?.Digest;
}
