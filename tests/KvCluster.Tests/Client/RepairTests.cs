using System.Diagnostics;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Security;
using KvCluster.Tests.Grpc;
using KvCluster.V1;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Client;

/// <summary>Stale maps, dead leaders, broken streams: what is repeated, what is not, and what the caller is told.</summary>
public sealed class RepairTests
{
    [Fact]
    public async Task Put_AtAFormerLeader_FollowsTheHintAndRemembersIt()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = new KvClient(cluster.Endpoint);
        await client.PutAsync("a", "1");
        cluster.Lead(1, node: 3);
        await client.PutAsync("a", "2");
        await client.PutAsync("a", "3");
        Assert.Equal(2, cluster.Nodes[0].Calls.Count);
        Assert.Equal(2, cluster.Nodes[2].Calls.Count);
        Assert.Equal(3, cluster.Applied["a"]);
    }

    [Fact]
    public async Task Put_OfManyCallersWhenTheLeaderDied_IsAppliedOnceAtTheNewLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = new KvClient(cluster.Endpoint);
        await client.PutAsync("warm", "up");
        await cluster.Nodes[0].DisposeAsync();
        cluster.Lead(1, node: 2);
        await Task.WhenAll(Enumerable.Range(0, 200).Select(number => client.PutAsync($"key{number}", "value").AsTask()));
        Assert.All(Enumerable.Range(0, 200), number => Assert.Equal(1, cluster.Applied[$"key{number}"]));
    }

    [Fact]
    public async Task Put_WhenNobodyListensAtTheLeader_IsAppliedOnceElsewhere()
    {
        await using var cluster = await FakeCluster.StartAsync(3, "m");
        // Shard 2 is led by node 2, to which this client has no connection yet: its call is certainly not sent.
        await cluster.Nodes[1].DisposeAsync();
        cluster.Lead(2, node: 3);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint] });
        await client.PutAsync("n", "1");
        Assert.Equal(1, cluster.Applied["n"]);
    }

    [Fact]
    public async Task Put_WithoutIdSentOverAStreamThatBreaks_HasAnUnknownOutcomeAndIsNotRepeated()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], ExactlyOnce = false });
        BreakOnce(cluster.Nodes[0], Method.Put);
        var failure = await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => client.PutAsync("a", "1").AsTask());
        Assert.Equal(ChangeOutcome.Unknown, failure.Outcome);
        await client.PutAsync("b", "1");
        Assert.Equal(2, cluster.Nodes[0].Calls.Count);
    }

    [Fact]
    public async Task Get_SentOverAStreamThatBreaks_IsRepeated()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(cluster.Endpoint);
        await client.PutAsync("a", "1");
        BreakOnce(cluster.Nodes[0], Method.Get);
        var result = await client.GetAsync("a");
        Assert.Equal("1"u8.ToArray(), result.Value.ToArray());
    }

    [Theory]
    [InlineData("NO_LEADER")]
    [InlineData("BUSY")]
    [InlineData("STOPPING")]
    [InlineData("NOT_LEADER")]
    [InlineData("WRONG_SHARD")]
    public async Task Put_RefusedForAWhile_IsRepeatedUntilItIsTaken(string reason)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(cluster.Endpoint);
        var refusals = 5;
        cluster.Nodes[0].Script = call => Task.FromResult(refusals-- > 0 ? FakeNode.Refuse(call, StatusCode.Unavailable, reason) : null);
        await client.PutAsync("a", "1");
        Assert.Equal(6, cluster.Nodes[0].Calls.Count);
        Assert.Equal(1, cluster.Applied["a"]);
    }

    [Fact]
    public async Task Put_RefusedUntilTheTimeIsUp_IsUnavailableAndSaysWhy()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(300) });
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY"));
        var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.PutAsync("a", "1").AsTask());
        Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
        Assert.Contains("BUSY", failure.Message, StringComparison.Ordinal);
        Assert.Empty(cluster.Applied);
    }

    [Theory]
    [InlineData("OUTCOME_UNKNOWN", 14, "unknown", typeof(KvOutcomeUnknownException))]
    [InlineData("DISK_FULL", 8, "no", typeof(KvException))]
    [InlineData("CORRUPT", 15, "no", typeof(KvException))]
    [InlineData("VALUE_TOO_LARGE", 3, "no", typeof(KvInvalidRequestException))]
    [InlineData("NO_LEADER", 14, "unknown", typeof(KvOutcomeUnknownException))]
    public async Task Put_WithoutIdRefusedForGood_IsNotRepeatedAndKeepsTheReason(string reason, int statusCode, string applied, Type kind)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], ExactlyOnce = false });
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, (StatusCode)statusCode, reason, applied));
        var failure = (KvException)await Assert.ThrowsAsync(kind, () => client.PutAsync("a", "1").AsTask());
        Assert.Equal(applied == "unknown" ? ChangeOutcome.Unknown : ChangeOutcome.NotApplied, failure.Outcome);
        Assert.Equal(applied == "unknown" ? "OUTCOME_UNKNOWN" : reason, failure.Reason);
        Assert.Single(cluster.Nodes[0].Calls);
    }

    [Fact]
    public async Task Call_ThatIsNeverAnswered_EndsAtItsTime()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(500) });
        cluster.Nodes[0].Script = _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => client.PutAsync("a", "1").AsTask());
        await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask());
    }

    /// <summary>
    /// A reply that comes after its call's deadline must not answer a later call that took its place in the table of open calls.
    /// </summary>
    [Fact]
    public async Task Reply_AfterTheDeadline_AnswersNobody()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(500), CallsInFlightMax = 1 });
        await client.PutAsync("a", "of a");
        await client.PutAsync("b", "of b");
        var late = new TaskCompletionSource();
        var second = new TaskCompletionSource();
        cluster.Nodes[0].Script = async call =>
        {
            if (cluster.Nodes[0].Calls.Count == 3)
                await late.Task;
            else
                await second.Task;
            return null;
        };
        await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask());
        var next = client.GetAsync("b").AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 4, "the second get arrives");
        var sent = cluster.Nodes[0].Replies;
        late.SetResult();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Replies == sent + 1, "the late reply is sent, before the next one");
        second.SetResult();
        Assert.Equal("of b"u8.ToArray(), (await next).Value.ToArray());
    }

    /// <summary>All places of a connection taken by calls that have more time is no reason to wait longer than the own time.</summary>
    [Fact]
    public async Task Call_ThatWaitsForAPlace_EndsAtItsTime()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var calls = new CallRouter(new KvClientOptions { Endpoints = [cluster.Endpoint], CallsInFlightMax = 1 }, new TlsConnector(files: null));
        var gate = new TaskCompletionSource();
        cluster.Nodes[0].Script = async _ =>
        {
            await gate.Task;
            return null;
        };
        var key = "a"u8.ToArray();
        var request = new GetRequest { Key = ByteString.CopyFrom(key) }.ToByteString();
        var patient = calls.CallAsync(Method.Get, key, request, Environment.TickCount64 + 60_000, CancellationToken.None).AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 1, "the first call has the place");
        var waiting = await calls.CallAsync(Method.Get, key, request, Environment.TickCount64 + 200, CancellationToken.None).AsTask().WaitAsync(TimeSpan.FromSeconds(30));
        Assert.Equal((int)StatusCode.DeadlineExceeded, waiting.Error?.Code);
        Assert.False(patient.IsCompleted);
        gate.SetResult();
        Assert.Null((await patient).Error);
        Assert.Single(cluster.Nodes[0].Calls);
    }

    [Fact]
    public async Task Cancel_OfOneCall_LeavesTheOthersAlone()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(cluster.Endpoint);
        var gate = new TaskCompletionSource();
        cluster.Nodes[0].Script = async _ =>
        {
            await gate.Task;
            return null;
        };
        using var cancellation = new CancellationTokenSource();
        var cancelled = client.PutAsync("a", "1", cancellationToken: cancellation.Token).AsTask();
        var other = client.PutAsync("b", "1").AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 2, "both calls arrive");
        await cancellation.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => cancelled);
        gate.SetResult();
        await other;
    }

    [Fact]
    public async Task Dispose_WhileCallsWait_EndsThemSoon()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var client = new KvClient(cluster.Endpoint);
        cluster.Nodes[0].Script = _ => Task.FromResult<Reply?>(FakeNode.Silence);
        var change = client.PutAsync("a", "1").AsTask();
        var read = client.GetAsync("a").AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 2, "both calls arrive");
        var started = Stopwatch.GetTimestamp();
        await client.DisposeAsync();
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => change);
        await Assert.ThrowsAsync<KvUnavailableException>(() => read);
        Assert.True(Stopwatch.GetElapsedTime(started) < TimeSpan.FromSeconds(5), "They waited for their deadline.");
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.GetAsync("a").AsTask());
        await client.DisposeAsync();
    }

    [Fact]
    public async Task Client_WithoutACluster_IsUnavailableAndNamesTheAddress()
    {
        string address;
        await using (var cluster = await FakeCluster.StartAsync(1))
            address = cluster.Endpoint;
        await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Timeout = TimeSpan.FromMilliseconds(400) });
        var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask());
        Assert.Contains(new Uri(address).Authority, failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Put_TooLargeForAnyNode_IsRefusedHereAndBreaksNothing()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(cluster.Endpoint);
        var failure = await Assert.ThrowsAsync<KvInvalidRequestException>(() => client.PutAsync("a"u8.ToArray(), new byte[20 << 20]).AsTask());
        Assert.Equal("VALUE_TOO_LARGE", failure.Reason);
        Assert.Empty(cluster.Nodes[0].Calls);
        await client.PutAsync("a"u8.ToArray(), new byte[8 << 20]);
        Assert.Equal(8 << 20, (await client.GetAsync("a")).Value.Length);
    }

    [Fact]
    public async Task Node_ThatCameBack_IsUsedAgain()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(cluster.Endpoint);
        await client.PutAsync("a", "1");
        await cluster.RestartAsync(cluster.Nodes[0]);
        Assert.Equal("1"u8.ToArray(), (await client.GetAsync("a")).Value.ToArray());
    }

    private static void BreakOnce(FakeNode node, Method method)
    {
        var broken = 0;
        node.Script = call =>
        {
            if (call.Method != method || Interlocked.Exchange(ref broken, 1) != 0)
                return Task.FromResult<Reply?>(null);
            node.Abort();
            return Task.FromResult<Reply?>(FakeNode.Silence);
        };
    }
}
