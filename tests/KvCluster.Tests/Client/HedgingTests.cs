using System.Collections.Concurrent;
using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>Reads that are sent to a second replica while the first one is silent (<see cref="KvReadOptions.HedgeAfter"/>).</summary>
public sealed class HedgingTests
{
    private static readonly TimeSpan After = TimeSpan.FromMilliseconds(50);
    private static readonly KvGetOptions Hedged = new() { Read = KvReadMode.Stale, HedgeAfter = After };
    private static readonly Position At = new() { Shard = 1, Etag = new V1.Etag { Epoch = 1, Change = 1 } };
    private static readonly GetResponse Found = new() { Position = At, Found = true, Value = ByteString.CopyFromUtf8("1"), Etag = At.Etag };

    private static readonly Dictionary<string, (Func<KvClient, Task> Call, IMessage Response)> Reads = new()
    {
        ["get"] = (static client => client.GetAsync("k", Hedged).AsTask(), Found),
        ["nearest"] = (static client => client.GetNearestAsync("k", KvNearest.Floor, options: Hedged).AsTask(), Found),
        ["many"] = (static client => client.GetManyAsync(["k"], Hedged).AsTask(), new GetManyResponse { Entries = { Found } }),
        ["count"] = (static client => client.CountAsync("k", Hedged), new CountResponse { Position = At }),
        ["set count"] = (static client => client.Sets.CountAsync("k", Hedged).AsTask(), new SetCountResponse { Position = At }),
    };

    public static TheoryData<string> NamesOfReads => new(Reads.Keys);

    [Theory]
    [MemberData(nameof(NamesOfReads))]
    public async Task Read_WithoutAnAnswerInTime_GoesToAnotherReplicaToo(string name)
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var read = Reads[name].Call(client);
        await nodes.PassAsync(After - TimeSpan.FromMilliseconds(1));
        var first = Assert.Single(nodes.Calls);
        await nodes.PassAsync(TimeSpan.FromMilliseconds(1));
        Assert.Equal(2, nodes.Calls.Count);
        var second = nodes.Calls.Last();
        Assert.NotEqual(first.Address, second.Address);
        second.Answer(Reads[name].Response);
        await read.WaitAsync(Eventually.Limit);
        Assert.True(first.IsCancelled);
        Assert.False(second.IsCancelled);
        Assert.Equal(2, nodes.Calls.Count);
    }

    [Fact]
    public async Task Read_AnsweredByTheFirstReplicaAfterAll_CancelsTheSecond()
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged).AsTask();
        await nodes.PassAsync(After);
        Assert.Equal(2, nodes.Calls.Count);
        nodes.Calls.First().Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
        Assert.True(nodes.Calls.Last().IsCancelled);
    }

    [Fact]
    public async Task Read_AnsweredInTime_IsSentOnce()
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged).AsTask();
        Assert.Single(nodes.Calls).Answer(Found);
        await get.WaitAsync(Eventually.Limit);
        await nodes.PassAsync(After);
        Assert.Single(nodes.Calls);
    }

    /// <summary>The failure of one replica does not end a read that another one is asked as well.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(1)]
    public async Task Read_RefusedByOneReplica_WaitsForTheOther(int refusing)
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged).AsTask();
        await nodes.PassAsync(After);
        nodes.Calls.ElementAt(refusing).Refuse(StatusCode.DeadlineExceeded, "REPLICA_BEHIND");
        nodes.Calls.ElementAt(1 - refusing).Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
        Assert.Equal(2, nodes.Calls.Count);
    }

    [Fact]
    public async Task Read_ThatNoReplicaWouldServe_EndsWithTheFirstRefusal()
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged).AsTask();
        await nodes.PassAsync(After);
        nodes.Calls.First().Refuse(StatusCode.InvalidArgument, "KEY_TOO_LONG");
        await Assert.ThrowsAsync<KvInvalidRequestException>(() => get.WaitAsync(Eventually.Limit));
        Assert.True(nodes.Calls.Last().IsCancelled);
    }

    [Theory]
    [InlineData(KvReadMode.Leader, false)]
    [InlineData(KvReadMode.Quorum, false)]
    [InlineData(KvReadMode.Stale, true)]
    public async Task Read_OfTheLeaderOrWithoutRetries_IsSentOnce(KvReadMode mode, bool noRetry)
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged with { Read = mode, NoRetry = noRetry }).AsTask();
        await nodes.PassAsync(After);
        Assert.Single(nodes.Calls).Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
        Assert.Single(nodes.Calls);
    }

    [Fact]
    public async Task Read_WithoutAnotherReplica_IsSentOnce()
    {
        var nodes = new HeldNodes(1);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", Hedged).AsTask();
        await nodes.PassAsync(After);
        Assert.Single(nodes.Calls).Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
    }

    /// <summary>The router behind an address chooses the replica, so a second call through it may reach another one.</summary>
    [Fact]
    public async Task Read_ThroughAGateway_IsSentThroughItAgain()
    {
        var nodes = new HeldNodes(1);
        await using var client = nodes.Connect(gateway: true);
        var get = client.GetAsync("k", Hedged).AsTask();
        await nodes.PassAsync(After);
        Assert.Equal(2, nodes.Calls.Count);
        nodes.Calls.Last().Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
        Assert.True(nodes.Calls.First().IsCancelled);
    }

    /// <summary>A cluster that is slow altogether would have to serve each read twice.</summary>
    [Fact]
    public async Task Reads_BeyondTheBudget_AreSentOnce()
    {
        const int budget = 1_000;
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var gets = Enumerable.Range(0, budget + 10).Select(_ => client.GetAsync("k", Hedged).AsTask()).ToList();
        await nodes.PassAsync(After);
        Assert.Equal(gets.Count + budget, nodes.Calls.Count);
        foreach (var call in nodes.Calls)
            call.Answer(Found);
        await Task.WhenAll(gets).WaitAsync(Eventually.Limit);
    }

    [Fact]
    public async Task Read_GivenUpByItsCaller_IsCancelledAtBothReplicas()
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        using var givesUp = new CancellationTokenSource();
        var get = client.GetAsync("k", Hedged, givesUp.Token).AsTask();
        await nodes.PassAsync(After);
        Assert.Equal(2, nodes.Calls.Count);
        await givesUp.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => get.WaitAsync(Eventually.Limit));
        Assert.All(nodes.Calls, static call => Assert.True(call.IsCancelled));
    }

    /// <summary>By its token a caller tells its own cancellation from that of something else.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Read_GivenUpWhileItWaitsForAPlace_NamesTheTokenOfItsCaller(bool isSentTwice)
    {
        var nodes = new HeldNodes(3) { AreFull = true };
        await using var client = nodes.Connect();
        using var givesUp = new CancellationTokenSource();
        var get = client.GetAsync("k", Hedged, givesUp.Token).AsTask();
        if (isSentTwice)
            await nodes.PassAsync(After);
        Assert.Equal(isSentTwice ? 2 : 1, nodes.Calls.Count);
        await givesUp.CancelAsync();
        var cancelled = await Assert.ThrowsAnyAsync<OperationCanceledException>(() => get.WaitAsync(Eventually.Limit));
        Assert.Equal(givesUp.Token, cancelled.CancellationToken);
    }

    /// <summary>Callers of many large values were told of a deadline, as if no leader had answered, and not when to try again.</summary>
    [Theory]
    [InlineData(60_000, "60.0 s")]
    [InlineData(400, "0.4 s")]
    public async Task Read_WithoutAPlaceInTime_IsBusyAndTellsHowLongToWait(int waitMs, string told)
    {
        var nodes = new HeldNodes(1);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k").AsTask();
        Assert.Single(nodes.Calls).EndWithoutPlace(TimeSpan.FromMilliseconds(waitMs));
        var busy = await Assert.ThrowsAsync<KvUnavailableException>(() => get.WaitAsync(Eventually.Limit));
        Assert.Equal(KvReasons.Busy, busy.Reason);
        Assert.Equal(TimeSpan.FromMilliseconds(waitMs), busy.RetryAfter);
        Assert.Contains($"Try again in {told}", busy.Message, StringComparison.Ordinal);
        // A repetition would be the last in line again.
        Assert.Single(nodes.Calls);
    }

    /// <summary>Whoever called through a router was not told when to try again.</summary>
    [Fact]
    public void Call_RefusedAsBusyUntilItsDeadline_TellsTheWaitThatTheLastRefusalAskedFor()
    {
        var wait = TimeSpan.FromMilliseconds(400);
        var runtime = new ClientRuntime(new ManualTime(), static () => 0, TaskCreationOptions.None);
        var call = CallAttempts.Rent(runtime, Method.Put, default, ByteString.Empty, 1_000, isIdentified: false, atAnyReplica: false);
        call.Refused(CallStatus.Busy("the shard's queue is full", wait));
        var end = call.TimedOut().Error!;
        Assert.Equal((int)StatusCode.DeadlineExceeded, end.Code);
        Assert.Equal((KvReasons.Busy, wait), (CallStatus.ReasonOf(end), CallStatus.RetryDelayOf(end)));
    }

    [Fact]
    public async Task Read_AtAnyReplica_WithoutAPlaceInTime_IsSentAgain()
    {
        var nodes = new HeldNodes(3);
        await using var client = nodes.Connect();
        var get = client.GetAsync("k", new KvGetOptions { Read = KvReadMode.Stale }).AsTask();
        Assert.Single(nodes.Calls).EndWithoutPlace(TimeSpan.FromMinutes(1));
        await Eventually.TrueAsync(() => nodes.Calls.Count == 2, "the read is sent again");
        nodes.Calls.Last().Answer(Found);
        Assert.True((await get.WaitAsync(Eventually.Limit)).Found);
    }

    [Theory]
    [InlineData(0)]
    [InlineData(-1)]
    [InlineData(25 * 3600)]
    public void HedgeAfter_ThatNoReadCanHave_IsRefused(int seconds)
    {
        var time = TimeSpan.FromSeconds(seconds);
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvReadOptions { HedgeAfter = time });
        Assert.Throws<ArgumentOutOfRangeException>(() => new KvGetOptions { HedgeAfter = time });
    }

    /// <summary>Replicas of one shard that keep each call until the test answers it, in the test's time.</summary>
    private sealed class HeldNodes(uint nodes) : INodeConnector
    {
        private readonly ManualTime _time = new();

        /// <summary>Whether each call waits for a place on its connection, from where a cancellation comes as an exception.</summary>
        public bool AreFull { get; init; }

        /// <summary>All calls, in the order in which they arrived.</summary>
        public ConcurrentQueue<HeldCall> Calls { get; } = new();

        public KvClient Connect(bool gateway = false) => new(
            new KvClientOptions { Endpoints = [AddressOf(1)], Gateway = gateway }, this, new ClientRuntime(_time, static () => 0, TaskCreationOptions.None));

        /// <summary>Lets time pass. What it ends goes on before this ends, because the thread that the timers run on has no context.</summary>
        public Task PassAsync(TimeSpan time) => Task.Run(() => _time.Advance(time));

        public INodeConnection Connect(string address) => new HeldConnection(this, address);

        public async IAsyncEnumerable<V1.ShardMap> WatchMap(string address, [EnumeratorCancellation] CancellationToken cancellationToken)
        {
            var numbers = Enumerable.Range(1, (int)nodes).Select(static node => (uint)node).ToList();
            yield return new V1.ShardMap
            {
                Cluster = "held",
                ClusterId = "1",
                Complete = true,
                Shards = { new ShardRoute { Shard = 1, Generation = 1, Epoch = 1, Leader = 1, Nodes = { numbers } } },
                Nodes = { numbers.Select(static node => new NodeAddress { Node = node, Address = AddressOf(node) }) },
            };
            await Task.Delay(Timeout.InfiniteTimeSpan, cancellationToken);
        }

        private static string AddressOf(uint node) => $"http://node-{node}:7400";
    }

    private sealed class HeldConnection(HeldNodes nodes, string address) : INodeConnection
    {
        public bool IsPaused => false;

        public ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
        {
            var held = new HeldCall(address);
            nodes.Calls.Enqueue(held);
            cancellationToken.Register(() => held.Cancel(nodes.AreFull ? cancellationToken : default));
            return new ValueTask<CallAnswer>(held.Ended);
        }

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;
    }

    private sealed class HeldCall(string address)
    {
        private readonly TaskCompletionSource<CallAnswer> _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);

        public string Address => address;

        public Task<CallAnswer> Ended => _ended.Task;

        /// <summary>Whether it was given up before it was answered.</summary>
        public bool IsCancelled { get; private set; }

        public void Cancel(CancellationToken thrown) => IsCancelled = thrown.CanBeCanceled
            ? _ended.TrySetCanceled(thrown)
            : _ended.TrySetResult(new CallAnswer(null, true, "cancelled", false));

        public void Answer(IMessage response) => End(new Reply { Response = response.ToByteString() });

        public void Refuse(StatusCode code, string reason) => End(FakeNode.Refuse(new Call(), code, reason));

        /// <summary>It waited for a place on its connection, in vain.</summary>
        public void EndWithoutPlace(TimeSpan wait) => _ended.TrySetResult(new CallAnswer(null, false, "too much is under way", false) { PlaceAfter = wait });

        private void End(Reply reply) => _ended.TrySetResult(new CallAnswer(reply, true, null, false));
    }
}
