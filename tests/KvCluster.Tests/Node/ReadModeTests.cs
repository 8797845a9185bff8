using System.Globalization;
using System.Text;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Admin.V1;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>Reads of every mode at leaders and followers of three nodes: what each shows, what it waits for, and how it is refused.</summary>
public sealed class ReadModeTests
{
    [Fact]
    public async Task Get_LinearizableAtAnyReplica_ShowsEverythingAcknowledgedBefore()
    {
        await using var cluster = await StartAsync();
        for (var round = 0; round < 30; round++)
        {
            var put = await cluster.PutAsync(Put("k", $"{round}"));
            foreach (var node in (uint[])[1, 2, 3])
            {
                var got = await AnsweredAsync(() => cluster.KvOf(node).GetAsync(Get("k", ReadMode.Replica)).ResponseAsync);
                Assert.Equal(($"{round}", put.Position.Etag), (got.Value.ToStringUtf8(), got.Etag));
                Assert.False(got.Position.HasAgeUs);
            }
        }
    }

    [Fact]
    public async Task GetManyAndScan_AtAFollower_AnswerByTheirMode()
    {
        await using var cluster = await StartAsync();
        await cluster.PutAsync(Put("a", "1"));
        var put = await cluster.PutAsync(Put("b", "2"));
        var follower = OtherThan(await cluster.LeaderOfAsync(0));
        foreach (var read in (ReadOptions[])
        [
            new() { Mode = ReadMode.Replica },
            new() { Mode = ReadMode.Session, Seen = { new Position { Shard = 7, Etag = new V1.Etag { Epoch = 99 } }, put.Position } },
        ])
        {
            var many = await AnsweredAsync(
                () => cluster.KvOf(follower).GetManyAsync(new GetManyRequest { Keys = { Bytes("b"), Bytes("none"), Bytes("a") }, Read = read }).ResponseAsync);
            Assert.Equal(["2", "", "1"], many.Entries.Select(entry => entry.Value.ToStringUtf8()));
            Assert.Equal(
                ["a", "b"],
                (await AnsweredAsync(() => ScanAsync(cluster, follower, read))).SelectMany(page => page.Entries).Select(entry => entry.Key.ToStringUtf8()));
        }
        var stale = Assert.Single(await ScanAsync(cluster, follower, new ReadOptions { Mode = ReadMode.Stale }));
        Assert.True(stale.Position.HasAgeUs);
    }

    [Fact]
    public async Task Get_AtAFollowerInALeaderOnlyMode_IsRefusedWithTheRoute()
    {
        await using var cluster = await StartAsync();
        await cluster.PutAsync(Put("k", "v"));
        foreach (var mode in (ReadMode[])[ReadMode.Unspecified, ReadMode.Leader, ReadMode.Quorum])
        {
            Assert.Equal("v", await AnsweredAsync(
                async () => (await cluster.KvOf(await cluster.LeaderOfAsync(0)).GetAsync(Get("k", mode))).Value.ToStringUtf8(), "NOT_LEADER"));
            // The leader while a follower is asked.
            uint leader;
            (StatusCode Code, string? Reason, uint? Leader) refused;
            do
            {
                leader = await cluster.LeaderOfAsync(0);
                refused = await RefusedAsync(cluster, OtherThan(leader), Get("k", mode));
            }
            while (leader != await cluster.LeaderOfAsync(0));
            Assert.Equal((StatusCode.Unavailable, "NOT_LEADER", leader), (refused.Code, refused.Reason, refused.Leader));
        }
        Assert.Equal("BAD_REQUEST", (await RefusedAsync(cluster, await cluster.LeaderOfAsync(0), Get("k", (ReadMode)99))).Reason);
    }

    [Fact]
    public async Task Get_OfASessionAtAFollowerThatLags_WaitsAndSeesItsOwnWrite()
    {
        await using var cluster = await NodeCluster.StartWithLinksToHoldAsync(3, NodeCluster.Steady);
        await CutOffFirstAsync(cluster);
        var put = await cluster.PutAsync(Put("k", "mine"));
        var waiting = cluster.KvOf(1).GetAsync(Session("k", put.Position), deadline: DateTime.UtcNow + Eventually.Limit).ResponseAsync;
        Assert.False((await cluster.KvOf(1).GetAsync(Get("k", ReadMode.Stale))).Found);
        Assert.False((await cluster.KvOf(1).GetAsync(Session("k"))).Found);
        Assert.False(waiting.IsCompleted);
        cluster.ReleaseLinksOfFirst();
        Assert.Equal("mine", (await waiting).Value.ToStringUtf8());
    }

    /// <summary>The read waited as long as its stream lived, and kept its place, for an etag that will never exist.</summary>
    [Fact]
    public async Task Get_OfASessionWithoutADeadline_IsRefusedAsBehindAfterTheWaitLimit()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        cluster.ReadWaitMax = TimeSpan.FromMilliseconds(100);
        await cluster.StartNodeAsync(1);
        var ahead = new Position { Shard = 0, Etag = new V1.Etag { Epoch = 1_000_000 } };
        await cluster.LeaderOfAsync(0);
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await cluster.KvOf(1).GetAsync(Session("k", ahead)));
        Assert.Equal("REPLICA_BEHIND", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
        // Also with a deadline that is too far away for a timer.
        failure = await Assert.ThrowsAsync<RpcException>(
            async () => await cluster.KvOf(1).GetAsync(Session("k", ahead), deadline: DateTime.UtcNow.AddDays(60)));
        Assert.Equal("REPLICA_BEHIND", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
    }

    [Fact]
    public async Task Get_OfASessionAtAFollowerThatDoesNotCatchUpInTime_IsRefusedAsBehind()
    {
        await using var cluster = await NodeCluster.StartWithLinksToHoldAsync(3, NodeCluster.Steady);
        await CutOffFirstAsync(cluster);
        var put = await cluster.PutAsync(Put("k", "mine"));
        using var exchange = cluster.KvOf(1).Exchange();
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(200), async time =>
        {
            var request = Session("k", put.Position).ToByteString();
            var call = new Call { Id = 1, Method = V1.Method.Get, Request = request, TimeoutMs = (uint)time.TotalMilliseconds };
            await exchange.RequestStream.WriteAsync(new ExchangeRequest { Calls = { call } });
            Assert.True(await exchange.ResponseStream.MoveNext(CancellationToken.None));
            var reply = Assert.Single(exchange.ResponseStream.Current.Replies);
            Assert.Equal(StatusCode.DeadlineExceeded, (StatusCode)reply.Code);
            // A call whose time has passed before its turn has not asked the replica.
            return Google.Rpc.Status.Parser.ParseFrom(reply.Status).GetDetail<ErrorInfo>()!.Reason == "REPLICA_BEHIND";
        });
        cluster.ReleaseLinksOfFirst();
    }

    [Fact]
    public async Task IsolatedFollower_RefusesLinearizableReadsAndServesStaleOnesWithTheirAge()
    {
        await using var cluster = await NodeCluster.StartWithLinksToHoldAsync(3, new ReplicationOptions());
        var old = await cluster.PutAsync(Put("k", "old"));
        await CutOffFirstAsync(cluster, old.Position);
        await cluster.PutAsync(Put("k", "new"));
        Assert.Equal(
            (StatusCode.Unavailable, "NO_LEADER"),
            (await RefusedAsync(cluster, 1, Get("k", ReadMode.Replica))) is var refused ? (refused.Code, refused.Reason) : default);

        var first = await cluster.KvOf(1).GetAsync(Get("k", ReadMode.Stale));
        var second = await cluster.KvOf(1).GetAsync(Get("k", ReadMode.Stale));
        Assert.Equal(("old", old.Position.Etag), (first.Value.ToStringUtf8(), first.Etag));
        Assert.True(second.Position.AgeUs > first.Position.AgeUs, $"{second.Position.AgeUs} us after {first.Position.AgeUs} us");
        // Linearizable reads were refused only after this long without an answer from the leader.
        Assert.True(first.Position.AgeUs > 300_000, $"{first.Position.AgeUs} us");
        await Eventually.TrueAsync(
            () => cluster.KvOf(cluster.LeaderOfAsync(0).Result).Get(Get("k", ReadMode.Stale)).Value.ToStringUtf8() == "new",
            "stale reads at the leader show the new value");

        cluster.ReleaseLinksOfFirst();
        await Eventually.TrueAsync(
            () => cluster.KvOf(1).Get(Get("k", ReadMode.Stale)) is { Position.AgeUs: < 300_000 } got && got.Value.ToStringUtf8() == "new",
            "node 1 hears from the leader again");
        Assert.Equal("new", await UntilServedAsync(cluster, 1, Get("k", ReadMode.Replica)));
    }

    [Fact]
    public async Task Get_ConfirmedByAQuorum_IsRefusedByAnIsolatedLeaderEvenWithALease()
    {
        await using var cluster = await NodeCluster.StartWithLinksToHoldAsync(3, new ReplicationOptions());
        await cluster.PutAsync(Put("k", "old"));
        string? reason;
        do
        {
            // Try again if another node was elected before the links were held, as may happen when the machine stalls.
            await LeadAsync(cluster, 1);
            cluster.HoldLinksOfFirst();
            var refused = await RefusedAsync(cluster, 1, Get("k", ReadMode.Quorum));
            Assert.Equal(StatusCode.Unavailable, refused.Code);
            reason = refused.Reason;
            cluster.ReleaseLinksOfFirst();
        }
        while (reason == "NOT_LEADER");
        Assert.Equal("NO_LEADER", reason);
        await LeadAsync(cluster, 1);
        Assert.Equal("old", await UntilServedAsync(cluster, await cluster.LeaderOfAsync(0), Get("k", ReadMode.Quorum)));
    }

    [Fact]
    public async Task KvClient_InEveryModeButStale_SeesItsOwnWritesWhicheverReplicaAnswers()
    {
        await using var cluster = await NodeCluster.StartAsync(3, "m"u8.ToArray());
        await cluster.LeaderOfAsync(0);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [$"http://{cluster.ChannelOf(1).Target}"], Timeout = Eventually.Limit });
        for (var round = 0; round < 10; round++)
        {
            foreach (var key in (string[])["a", "z"])
            {
                await client.PutAsync(key, $"{round}");
                foreach (var mode in (KvReadMode[])[KvReadMode.Session, KvReadMode.Replica, KvReadMode.Quorum, KvReadMode.Leader])
                    Assert.Equal($"{round}", Encoding.UTF8.GetString((await client.GetAsync(key, mode)).Value.Span));
                await foreach (var entry in client.ScanAsync(new KvScan { Prefix = Encoding.UTF8.GetBytes(key), Read = KvReadMode.Session }))
                    Assert.Equal($"{round}", Encoding.UTF8.GetString(entry.Value.Span));
            }
        }
        Assert.NotNull((await client.GetAsync("a", KvReadMode.Stale)).Age);
    }

    /// <summary>Each read returns what was acknowledged before it, or a refusal that points to another replica or a later attempt.</summary>
    [Fact]
    public async Task Get_LinearizableAtAReplicaWhileTheLeaderChanges_IsAnsweredOrRefusedCleanly()
    {
        await using var cluster = await StartAsync(new ReplicationOptions());
        await cluster.PutAsync(Put("k", "0"));
        var leader = await cluster.LeaderOfAsync(0);
        var readers = new[] { 1u, 2u, 3u }.Where(node => node != leader).ToArray();
        var acknowledged = 0;
        var done = false;
        var reading = readers.Select(node => Task.Run(async () =>
        {
            var answered = 0;
            // The last reads are of an elected leader, so each of them is answered once even if the machine runs a reader late.
            while (!Volatile.Read(ref done) || answered == 0)
            {
                var before = Volatile.Read(ref acknowledged);
                try
                {
                    var got = await cluster.KvOf(node).GetAsync(Get("k", ReadMode.Replica), deadline: DateTime.UtcNow + Eventually.Limit);
                    Assert.True(int.Parse(got.Value.ToStringUtf8(), CultureInfo.InvariantCulture) >= before, $"node {node} gave {got.Value.ToStringUtf8()} "
                        + $"after {before} was acknowledged");
                    answered++;
                }
                catch (RpcException failure)
                {
                    Assert.Equal((StatusCode.Unavailable, "NO_LEADER"), (failure.StatusCode, ReasonOf(failure)));
                }
            }
            return answered;
        })).ToArray();
        for (var write = 1; write <= 40; write++)
        {
            if (write == 20)
                await cluster.StopNodeAsync(leader);
            await cluster.PutAsync(Put("k", $"{write}"));
            Volatile.Write(ref acknowledged, write);
        }
        foreach (var node in readers)
            Assert.Equal("40", await UntilServedAsync(cluster, node, Get("k", ReadMode.Replica)));
        Volatile.Write(ref done, true);
        Assert.All(await Task.WhenAll(reading), answered => Assert.True(answered > 0));
    }

    /// <summary>Three nodes whose replicas have all joined; a leader needs only two of them.</summary>
    private static async Task<NodeCluster> StartAsync(ReplicationOptions? replication = null)
    {
        var cluster = await NodeCluster.StartAsync(3, replication ?? NodeCluster.Steady);
        foreach (var node in (uint[])[1, 2, 3])
            await UntilServedAsync(cluster, node, Get("k", ReadMode.Replica));
        return cluster;
    }

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static PutRequest Put(string key, string value) => new() { Key = Bytes(key), Value = Bytes(value) };

    private static GetRequest Get(string key, ReadMode mode) => new() { Key = Bytes(key), Read = new ReadOptions { Mode = mode } };

    private static GetRequest Session(string key, params Position[] seen) =>
        new() { Key = Bytes(key), Read = new ReadOptions { Mode = ReadMode.Session, Seen = { seen } } };

    private static uint OtherThan(uint node) => node == 1 ? 2u : 1u;

    private static string? ReasonOf(RpcException failure) => failure.GetRpcStatus()?.GetDetail<ErrorInfo>()?.Reason;

    /// <summary>Returns why a read is refused, or OK if it is answered.</summary>
    private static async Task<(StatusCode Code, string? Reason, uint? Leader)> RefusedAsync(NodeCluster cluster, uint node, GetRequest request)
    {
        try
        {
            await cluster.KvOf(node).GetAsync(request, deadline: DateTime.UtcNow + Eventually.Limit);
            return (StatusCode.OK, null, null);
        }
        catch (RpcException failure)
        {
            return (failure.StatusCode, ReasonOf(failure), failure.GetRpcStatus()?.GetDetail<RouteHint>()?.Routes.Single().Leader);
        }
    }

    private static async Task<string> UntilServedAsync(NodeCluster cluster, uint node, GetRequest request)
    {
        string? value = null;
        await Eventually.TrueAsync(
            () =>
            {
                try
                {
                    value = cluster.KvOf(node).Get(request).Value.ToStringUtf8();
                    return true;
                }
                catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable)
                {
                    return false;
                }
            },
            $"node {node} serves {request}");
        return value!;
    }

    private static async Task<List<ScanPage>> ScanAsync(NodeCluster cluster, uint node, ReadOptions read)
    {
        using var call = cluster.KvOf(node).Scan(new ScanRequest { Read = read });
        var pages = new List<ScanPage>();
        while (await call.ResponseStream.MoveNext(CancellationToken.None))
            pages.Add(call.ResponseStream.Current);
        return pages;
    }

    /// <summary>Makes another node than 1 lead, waits until node 1 has applied everything written so far, then holds node 1's links.</summary>
    private static async Task CutOffFirstAsync(NodeCluster cluster, params Position[] seen)
    {
        do
        {
            // Try again if the leadership went to node 1 before its links were held. It is the preferred node and gets the leadership back some
            // seconds after the start.
            cluster.ReleaseLinksOfFirst();
            if (await cluster.LeaderOfAsync(0) == 1)
                await LeadAsync(cluster, 2);
            await UntilServedAsync(cluster, 1, Get("k", ReadMode.Replica));
            await UntilServedAsync(cluster, 1, Session("k", seen));
            cluster.HoldLinksOfFirst();
        }
        while ((await cluster.StatusOfAsync(1)).Replicas.Single().Role == Role.Leader);
    }

    private static async Task LeadAsync(NodeCluster cluster, uint node)
    {
        // Wait until its replica has joined.
        await UntilServedAsync(cluster, node, Get("k", ReadMode.Replica));
        await Eventually.TrueAsync(
            () =>
            {
                try
                {
                    var leader = cluster.LeaderOfAsync(0).Result;
                    return leader == node || cluster.AdminOf(leader).Transfer(new TransferRequest { Shard = 0, ToNode = node }).Leader == node;
                }
                catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
                {
                    return false;
                }
            },
            $"node {node} leads");
        await Eventually.TrueAsync(() => cluster.LeaderOfAsync(0).Result == node, $"node {node} leads by its own account");
    }

    /// <summary>A temporary refusal is no answer: the leader may not have been heard from in time.</summary>
    /// <param name="passing">Another reason for a temporary refusal.</param>
    private static Task<T> AnsweredAsync<T>(Func<Task<T>> read, string passing = "NO_LEADER") =>
        Eventually.AnsweredAsync(read, refused => ReasonOf(refused) is var reason && (reason == "NO_LEADER" || reason == passing));
}
