using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>What a single call can be given: its time, and that it is not repeated.</summary>
public sealed class CallOptionsTests
{
    private static readonly TimeSpan Short = TimeSpan.FromMilliseconds(300);
    private static readonly KvChangeOptions ShortChange = new() { Timeout = Short };

    private static readonly Dictionary<string, Func<KvClient, Task>> ShortCalls = new()
    {
        ["get"] = static client => client.GetAsync("k", new KvGetOptions { Timeout = Short }).AsTask(),
        ["nearest"] = static client => client.GetNearestAsync("k", KvNearest.Floor, options: new KvGetOptions { Timeout = Short }).AsTask(),
        ["many"] = static client => client.GetManyAsync(["k"], new KvGetOptions { Timeout = Short }).AsTask(),
        ["count"] = static client => client.CountAsync("k", new KvReadOptions { Timeout = Short }),
        ["list"] = static client => client.ListAsync(new KvList { Timeout = Short }).AsTask(),
        ["put"] = static client => client.PutAsync("k", "v", new KvPutOptions { Timeout = Short }).AsTask(),
        ["put with a life"] = static client =>
            client.PutAsync("k", "v", new KvPutOptions { TimeToLive = TimeSpan.FromHours(1), Timeout = Short }).AsTask(),
        ["delete"] = static client => client.DeleteAsync("k", ShortChange).AsTask(),
        ["delete of a range"] = static client => client.DeleteRangeAsync(new KvRange { Prefix = "k" }, ShortChange).AsTask(),
        ["increment"] = static client => client.IncrementAsync("k", options: ShortChange).AsTask(),
        ["touch"] = static client => client.TouchAsync("k", null, ShortChange).AsTask(),
        ["write"] = static client => client.WriteAsync(new KvWrite().Put("k", "v"), ShortChange).AsTask(),
        ["write that reads"] = static client =>
        {
            var write = new KvWrite().WithResults();
            write.Operations.Get("k");
            return client.WriteAsync(write, ShortChange).AsTask();
        },
        ["transaction"] = static client =>
        {
            var transaction = new KvTransaction();
            transaction.Then.Delete("k");
            return client.TransactAsync(transaction, ShortChange).AsTask();
        },
        ["set add"] = static client => client.Sets.AddAsync("k", ["m"], ShortChange).AsTask(),
        ["set remove"] = static client => client.Sets.RemoveAsync("k", ["m"], ShortChange).AsTask(),
        ["set remove all"] = static client => client.Sets.RemoveAllAsync("k", ShortChange).AsTask(),
        ["set count"] = static client => client.Sets.CountAsync("k", new KvReadOptions { Timeout = Short }).AsTask(),
        ["set scan"] = static client => client.Sets.ScanAsync("k", new KvSetScan { Timeout = Short }).GetAsyncEnumerator().MoveNextAsync().AsTask(),
        ["set intersect"] = static client => client.Sets.IntersectAsync(new KvIntersection { Keys = ["k"], Timeout = Short }).AsTask(),
        ["keep alive"] = static client =>
            client.Sessions.KeepAliveAsync(new KvSession("k", new byte[16], TimeSpan.FromMinutes(1)), ShortChange).AsTask(),
    };

    public static TheoryData<string> NamesOfShortCalls => new(ShortCalls.Keys);

    [Theory]
    [MemberData(nameof(NamesOfShortCalls))]
    public async Task Call_WithATimeoutOfItsOwn_EndsWithIt(string name)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await using var client = cluster.Connect();
        Assert.NotNull(await client.FindShardAsync("k"));
        var failure = await Assert.ThrowsAnyAsync<KvException>(() => ShortCalls[name](client).WaitAsync(Eventually.Limit / 2));
        Assert.Contains(failure.Reason, (string[])["DEADLINE_PASSED", "OUTCOME_UNKNOWN", "NO_LEADER"]);
    }

    [Fact]
    public async Task Scan_WithATimeoutOfItsOwn_EndsWithIt()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("k", "v");
        using var mayAnswer = new ManualResetEventSlim();
        cluster.Nodes[0].ScanScript = _ => mayAnswer.Wait(Eventually.Limit);
        try
        {
            var pages = client.ScanAsync(new KvScan { Timeout = Short }).GetAsyncEnumerator();
            await Assert.ThrowsAsync<KvUnavailableException>(() => pages.MoveNextAsync().AsTask().WaitAsync(Eventually.Limit / 2));
        }
        finally
        {
            mayAnswer.Set();
        }
    }

    [Theory]
    [InlineData(0)]
    [InlineData(-1)]
    [InlineData(25 * 3600)]
    public void Timeout_ThatNoCallCanHave_IsRefused(int seconds)
    {
        var timeout = TimeSpan.FromSeconds(seconds);
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvCallOptions { Timeout = timeout });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvPutOptions { Timeout = timeout });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvScan { Timeout = timeout });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvList { Timeout = timeout });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvSetScan { Timeout = timeout });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvIntersection { Timeout = timeout });
    }

    [Fact]
    public void Put_InAWrite_WithOptionsOfACall_IsRefused()
    {
        Assert.Throws<ArgumentException>(() => new KvWrite().Put("k", "v", new KvPutOptions { Timeout = Short }));
        Assert.Throws<ArgumentException>(() => new KvWrite().Put("k", "v", new KvPutOptions { NoRetry = true }));
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Call_ThatIsRefusedForNow_IsRepeatedUnlessItSaysNo(bool noRetry)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("k", "v");
        var refused = 0;
        cluster.Nodes[0].Script = call =>
            Task.FromResult(Interlocked.Increment(ref refused) == 1 ? FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY") : null);
        foreach (var call in (Func<Task>[])[
            () => client.GetAsync("k", new KvGetOptions { NoRetry = noRetry }).AsTask(),
            () => client.GetManyAsync(["k"], new KvGetOptions { NoRetry = noRetry }).AsTask(),
            () => client.CountAsync("k", new KvReadOptions { NoRetry = noRetry }),
            () => client.PutAsync("k", "w", new KvPutOptions { NoRetry = noRetry }).AsTask(),
            () => client.WriteAsync(new KvWrite().Put("k", "w"), new KvCallOptions { NoRetry = noRetry }).AsTask()])
        {
            refused = 0;
            if (noRetry)
                Assert.Equal("BUSY", (await Assert.ThrowsAsync<KvUnavailableException>(call)).Reason);
            else
                await call();
            Assert.Equal(noRetry ? 1 : 2, refused);
        }
    }

    /// <summary>The node says so, or its connection breaks, after which a repetition would also lack a connection.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Change_WithoutRetries_WhoseAnswerIsLost_HasAnUnknownOutcome(bool isTold)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("k", "v");
        cluster.Nodes[0].Calls.Clear();
        var attempts = 0;
        cluster.Nodes[0].Script = call =>
        {
            if (Interlocked.Increment(ref attempts) > 1)
                return Task.FromResult<Reply?>(null);
            if (isTold)
                return Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unknown, "OUTCOME_UNKNOWN", "unknown"));
            cluster.Nodes[0].Abort();
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => client.PutAsync("k", "w", new KvPutOptions { NoRetry = true }).AsTask());
        Assert.Single(cluster.Nodes[0].Calls);
    }

    /// <summary>Which node leads may have changed since the client's last call, and that is no failure.</summary>
    [Fact]
    public async Task Call_WithoutRetries_StillFollowsTheLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        await using var client = cluster.Connect();
        await client.PutAsync("k", "v");
        cluster.Lead(1, node: 2);
        await client.PutAsync("k", "w", new KvPutOptions { NoRetry = true });
        Assert.Equal("w", (await client.GetAsync("k", new KvGetOptions { NoRetry = true })).Value.ToUtf8String());
        Assert.NotEmpty(cluster.Nodes[1].CallsAsLeader);
    }
}
