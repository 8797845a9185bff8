using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Processes;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Client;

/// <summary>Stale maps, dead leaders, broken streams: what is repeated, what is not, and what the caller is told.</summary>
public sealed class RepairTests
{
    [Fact]
    public async Task Put_AtAFormerLeader_FollowsTheHintAndRemembersIt()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        cluster.Lead(1, node: 3);
        await client.PutAsync("a", "2");
        var asked = cluster.Nodes[0].Calls.Count;
        await client.PutAsync("a", "3");
        // The put, and the one that got the hint. It may be asked again while the connection to the next leader takes long.
        Assert.True(asked >= 2, $"{asked}");
        Assert.Equal(asked, cluster.Nodes[0].Calls.Count);
        Assert.Equal(2, cluster.Nodes[2].CallsAsLeader.Count());
        Assert.Equal(3, cluster.Applied["a"]);
    }

    [Fact]
    public async Task Put_OfManyCallersWhenTheLeaderDied_IsAppliedOnceAtTheNewLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        await using var client = cluster.Connect();
        await client.PutAsync("warm", "up");
        await cluster.Nodes[0].DisposeAsync();
        cluster.Lead(1, node: 2);
        await Task.WhenAll(Enumerable.Range(0, 200).Select(number => client.PutAsync($"key{number}", "value").AsTask()));
        Assert.All(Enumerable.Range(0, 200), number => Assert.Equal(1, cluster.Applied[$"key{number}"]));
    }

    [Fact]
    public async Task Put_LeaderNotListening_IsAppliedOnceAtTheNextLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(3, "m");
        // Node 2 leads shard 2, and this client has no connection to it yet, so the call is certainly not sent.
        await cluster.Nodes[1].DisposeAsync();
        cluster.Lead(2, node: 3);
        await using var client = cluster.Connect();
        await client.PutAsync("n", "1");
        Assert.Equal(1, cluster.Applied["n"]);
    }

    [Fact]
    public async Task Put_WithoutIdSentOverAStreamThatBreaks_HasAnUnknownOutcomeAndIsNotRepeated()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect(exactlyOnce: false);
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
        await using var client = cluster.Connect();
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
    public async Task Put_RefusedForAWhile_IsRepeatedUntilItIsAccepted(string reason)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var refusals = 5;
        cluster.Nodes[0].Script = call => Task.FromResult(refusals-- > 0 ? FakeNode.Refuse(call, StatusCode.Unavailable, reason) : null);
        await client.PutAsync("a", "1");
        Assert.Equal(6, cluster.Nodes[0].Calls.Count);
        Assert.Equal(1, cluster.Applied["a"]);
    }

    [Fact]
    public async Task Put_RefusedUntilTheDeadline_IsUnavailableWithTheReason()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY"));
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(300), async time =>
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.PutAsync("a", "1").AsTask());
            // Otherwise nothing was refused in time, or a later attempt had no answer yet.
            if (failure is KvOutcomeUnknownException || !failure.Message.Contains("BUSY", StringComparison.Ordinal))
                return false;
            Assert.IsType<KvUnavailableException>(failure);
            Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
            return true;
        });
        Assert.Empty(cluster.Applied);
    }

    [Theory]
    [InlineData("OUTCOME_UNKNOWN", 14, "unknown", typeof(KvOutcomeUnknownException))]
    [InlineData("DISK_FULL", 8, "no", typeof(KvException))]
    [InlineData("CORRUPT", 15, "no", typeof(KvException))]
    [InlineData("VALUE_TOO_LARGE", 3, "no", typeof(KvInvalidRequestException))]
    [InlineData("NO_LEADER", 14, "unknown", typeof(KvOutcomeUnknownException))]
    public async Task Put_WithoutIdAndPermanentlyRefused_IsNotRepeatedAndKeepsTheReason(string reason, int statusCode, string applied, Type kind)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect(exactlyOnce: false);
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, (StatusCode)statusCode, reason, applied));
        var failure = (KvException)await Assert.ThrowsAsync(kind, () => client.PutAsync("a", "1").AsTask());
        Assert.Equal(applied == "unknown" ? ChangeOutcome.Unknown : ChangeOutcome.NotApplied, failure.Outcome);
        Assert.Equal(applied == "unknown" ? "OUTCOME_UNKNOWN" : reason, failure.Reason);
        Assert.Single(cluster.Nodes[0].Calls);
    }

    [Fact]
    public async Task Call_NeverAnswered_EndsAtItsDeadline()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.PutAsync("a", "1").AsTask());
            await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask());
            // Otherwise the deadline passed before the put was sent.
            return failure is KvOutcomeUnknownException;
        });
    }

    /// <summary>A reply that arrives after its call's deadline must not answer a later call in the same place of the table of open calls.</summary>
    [Fact]
    public async Task Reply_AfterTheDeadline_AnswersNobody()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using (var client = cluster.Connect())
        {
            await client.PutAsync("a", "of a");
            await client.PutAsync("b", "of b");
        }
        await using var calls = OneAtATime(cluster);
        var late = new TaskCompletionSource();
        var second = new TaskCompletionSource();
        var (ofA, ofB) = (GetOf("a"), GetOf("b"));
        cluster.Nodes[0].Script = async call =>
        {
            await (call.Request.Equals(ofA) ? late : second).Task;
            return null;
        };
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            Assert.Equal((int)StatusCode.DeadlineExceeded, (await CallAsync(calls, "a", ofA, time)).Error?.Code);
            return cluster.Nodes[0].Calls.Any(call => call.Request.Equals(ofA));
        });
        var next = CallAsync(calls, "b", ofB, Eventually.Limit);
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Any(call => call.Request.Equals(ofB)), "the second get arrives");
        var sent = cluster.Nodes[0].Replies;
        late.SetResult();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Replies > sent, "the late reply is sent, before the next one");
        second.SetResult();
        Assert.Equal("of b", GetResponse.Parser.ParseFrom((await next).Response).Value.ToStringUtf8());
    }

    /// <summary>If calls with later deadlines occupy all places of a connection, a call still waits no longer than its own deadline allows.</summary>
    [Fact]
    public async Task Call_WaitingForAPlace_IsBusyInTheEnd_AndWasNotSent()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var calls = OneAtATime(cluster);
        var gate = new TaskCompletionSource();
        cluster.Nodes[0].Script = async _ =>
        {
            await gate.Task;
            return null;
        };
        var request = GetOf("a");
        var patient = CallAsync(calls, "a", request, Eventually.Limit * 2);
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 1, "the first call has the place");
        var waiting = await CallAsync(calls, "a", request, TimeSpan.FromMilliseconds(200)).WaitAsync(Eventually.Limit);
        Assert.Equal((StatusCode.Unavailable, KvReasons.Busy), ((StatusCode)waiting.Error!.Code, CallStatus.ReasonOf(waiting.Error)));
        Assert.True(CallStatus.RetryDelayOf(waiting.Error) > TimeSpan.Zero);
        Assert.False(patient.IsCompleted);
        gate.SetResult();
        Assert.Null((await patient).Error);
        Assert.Single(cluster.Nodes[0].Calls);
    }

    [Fact]
    public async Task Cancel_OfOneCall_LeavesTheOthersAlone()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
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
        var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromHours(1) });
        cluster.Nodes[0].Script = _ => Task.FromResult<Reply?>(FakeNode.Silence);
        var change = client.PutAsync("a", "1").AsTask();
        var read = client.GetAsync("a").AsTask();
        await Eventually.TrueAsync(() => cluster.Nodes[0].Calls.Count == 2, "both calls arrive");
        await client.DisposeAsync();
        await Assert.ThrowsAsync<KvOutcomeUnknownException>(() => change.WaitAsync(Eventually.Limit));
        await Assert.ThrowsAsync<KvUnavailableException>(() => read.WaitAsync(Eventually.Limit));
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.GetAsync("a").AsTask());
        await client.DisposeAsync();
    }

    [Fact]
    public async Task Client_WithoutACluster_IsUnavailableAndNamesTheAddress()
    {
        // A port that no test gets by chance.
        var address = $"http://127.0.0.1:{FreePorts.Ten()}";
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(400), async time =>
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [address], Timeout = time });
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask());
            // Otherwise the deadline passed before the first connection was refused.
            return failure.Message.Contains(new Uri(address).Authority, StringComparison.Ordinal);
        });
    }

    [Fact]
    public async Task Put_TooLargeForAnyNode_IsRefusedByTheClientAndDisturbsNoOtherCall()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var failure = await Assert.ThrowsAsync<KvInvalidRequestException>(() => client.PutAsync("a"u8.ToArray(), new byte[20 << 20]).AsTask());
        Assert.Equal("VALUE_TOO_LARGE", failure.Reason);
        Assert.Empty(cluster.Nodes[0].Calls);
        await client.PutAsync("a"u8.ToArray(), new byte[8 << 20]);
        Assert.Equal(8 << 20, (await client.GetAsync("a")).Value.Length);
    }

    [Fact]
    public async Task Node_ThatReturned_IsUsedAgain()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        await cluster.RestartAsync(cluster.Nodes[0]);
        Assert.Equal("1"u8.ToArray(), (await client.GetAsync("a")).Value.ToArray());
    }

    private static CallRouter OneAtATime(FakeCluster cluster) => new(
        new KvClientOptions { Endpoints = [cluster.Endpoint] },
        new GrpcConnector(new TlsConnector(files: null), callsInFlightMax: 1, NullLogger.Instance), ClientRuntime.Machine);

    private static ByteString GetOf(string key) => new GetRequest { Key = ByteString.CopyFromUtf8(key) }.ToByteString();

    private static Task<RoutedReply> CallAsync(CallRouter calls, string key, ByteString request, TimeSpan time) =>
        calls.CallAsync(
            Method.Get, System.Text.Encoding.UTF8.GetBytes(key), request, Environment.TickCount64 + (long)time.TotalMilliseconds,
            CancellationToken.None).AsTask();

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
