using System.Collections.Concurrent;
using System.Diagnostics;
using System.Text;
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.ServiceDefaults.Security;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Client;

/// <summary>How a client reaches its cluster: options, several endpoints, loops that must not end, and how often it retries.</summary>
public sealed class ReachTests
{
    [Fact]
    public void Options_Invalid_AreRefusedWithEveryMistake()
    {
        var failure = Assert.Throws<ArgumentException>(() => new KvClient(new KvClientOptions
        {
            Endpoints = ["localhost:7400", "http://host:1/path", "http://good:1", "http://me:secret@host:2", "http://host:3/?token=secret", "me:secret@host"],
            Timeout = TimeSpan.Zero,
            CallsInFlightMax = 100_000,
            Read = (KvReadMode)77,
            Tls = new KvTlsOptions { KeyFile = "key.pem" },
        }));
        foreach (var mistake in (string[])["'localhost:7400'",
            "'http://host:1/path'", "Timeout is 00:00:00", "CallsInFlightMax is 100000", "no read mode 77", "Tls.KeyFile requires CertificateFile"])
            Assert.Contains(mistake, failure.Message, StringComparison.Ordinal);
        Assert.DoesNotContain("good", failure.Message, StringComparison.Ordinal);
        Assert.Contains("'http://host:2/' must have only a host and a port", failure.Message, StringComparison.Ordinal);
        Assert.DoesNotContain("secret", failure.Message, StringComparison.Ordinal);
        Assert.Contains(
            "Endpoints is empty", Assert.Throws<ArgumentException>(() => new KvClient(new KvClientOptions { Endpoints = [] })).Message,
            StringComparison.Ordinal);
    }

    /// <summary>Status, scans and operators' calls went to the first endpoint only, and failed with it.</summary>
    [Fact]
    public async Task Gateway_FirstEndpointDead_UsesTheOthersForEverything()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        var first = await RouterOfAsync(cluster);
        await using var second = await RouterOfAsync(cluster);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [first.Address, second.Address], Gateway = true, Timeout = Eventually.Limit });
        await client.PutAsync("a", "1");
        await first.DisposeAsync();
        for (var attempt = 0; attempt < 3; attempt++)
        {
            await client.PutAsync("n", "1");
            Assert.Equal(2, await client.CountAsync(default));
            Assert.Equal(2, (await client.Admin.GetStatusAsync()).Nodes.Count);
            await client.Admin.DrainAsync(1);
        }
        await using var late = new KvClient(
            new KvClientOptions { Endpoints = ["http://127.0.0.1:1", second.Address], Gateway = true, Timeout = Eventually.Limit });
        Assert.Equal(2, (await late.Admin.GetStatusAsync()).Nodes.Count);
        Assert.True((await late.GetAsync("a")).Found);
    }

    [Fact]
    public async Task Gateway_WithSeveralEndpoints_UsesThemInTurn()
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [.. cluster.Nodes.Select(node => node.Address)], Gateway = true, Timeout = Eventually.Limit });
        // While the connection to one of them is being made, the other serves all calls.
        await Eventually.TrueAsync(async () =>
        {
            for (var number = 0; number < 20; number++)
                await client.PutAsync($"k{number}", "v");
            return cluster.Nodes.All(static node => !node.Calls.IsEmpty);
        }, "both endpoints have served calls");
    }

    /// <summary>
    /// All calls through a gateway counted as calls of one shard. The changes of a stuck shard took the places of all changes and left the others'
    /// unused.
    /// </summary>
    [Fact]
    public async Task Gateway_WithAStuckShard_StillDeliversChangesOfOthers()
    {
        await using var cluster = await FakeCluster.StartAsync(1, "m");
        var node = cluster.Nodes[0];
        node.Script = static call => Task.FromResult(
            call.Method == V1.Method.Put && PutRequest.Parser.ParseFrom(call.Request).Key[0] == 'a' ? FakeNode.Silence : null);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.Endpoint], Gateway = true, CallsInFlightMax = 16, Timeout = Eventually.Limit });
        await client.PutAsync("q", "0");
        using var givesUp = new CancellationTokenSource();
        var stuck = Enumerable.Range(0, 40).Select(number => client.PutAsync($"a{number}", "1", cancellationToken: givesUp.Token).AsTask()).ToList();
        await Eventually.TrueAsync(() => node.Calls.Count(static call => call.Method == V1.Method.Put) > 4, "calls of the shard have gone to the node, and "
            + "others wait for their places");
        for (var number = 0; number < 20; number++)
            await client.PutAsync($"q{number}", "1");
        Assert.DoesNotContain(stuck, static put => put.IsCompleted);
        await givesUp.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => Task.WhenAll(stuck));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task EndpointsOfTwoClusters_AreNeverMixed(bool gateway)
    {
        await using var one = await FakeCluster.StartAsync(1);
        await using var other = await FakeCluster.StartAsync(1);
        var log = new LinesLog();
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [one.Endpoint, other.Endpoint], Gateway = gateway, Timeout = Eventually.Limit, Log = log });
        for (var number = 0; number < 10; number++)
            await client.PutAsync($"k{number}", "v");
        var (used, unused) = one.Applied.IsEmpty ? (other, one) : (one, other);
        Assert.Equal(10, used.Applied.Count);
        if (gateway)
            await Eventually.TrueAsync(
                () => log.Lines.Any(line => line.Contains("is not used", StringComparison.Ordinal)), "the log names the endpoint of another cluster");
        // If its own cluster is gone, a client must fail rather than change to another cluster.
        await used.Nodes[0].DisposeAsync();
        await Eventually.TrueAsync(() => log.Lines.Any(line => line.Contains(unused.ClusterId, StringComparison.Ordinal)), "the log names the other cluster");
        Assert.Empty(unused.Applied);
    }

    /// <summary>An unexpected exception ended the stream's loop for good. Every later call to that node waited for its deadline.</summary>
    [Fact]
    public async Task Call_ToANodeWithAMalformedAddress_FailsAtOnceAndTriesAnother()
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        cluster.AddressesTold[1] = "http://[no address";
        var log = new LinesLog();
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Nodes[1].Address], Timeout = Eventually.Limit, Log = log });
        var put = client.PutAsync("a", "1").AsTask();
        await Eventually.TrueAsync(
            () => log.Lines.Any(line => line.Contains("the stream of calls", StringComparison.Ordinal)), "the log tells of the exception");
        cluster.Lead(1, node: 2);
        cluster.Announce();
        await put;
        Assert.Equal(1, cluster.Applied["a"]);
    }

    /// <summary>The same for the map: the client never learned of another leader.</summary>
    [Fact]
    public async Task MapStream_ThrowsUnexpectedly_IsRestarted()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var log = new LinesLog();
        var connector = new ThrowingConnector(new GrpcConnector(new KvCluster.Tls.TlsConnector(files: null), 16, log));
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = Eventually.Limit, Log = log }, connector, ClientRuntime.Machine);
        await client.PutAsync("a", "1");
        Assert.Contains(log.Lines, line => line.Contains("the shard map's stream", StringComparison.Ordinal));
    }

    /// <summary>Between two attempts to connect, a call through a gateway forgot why the last one had failed, and most calls end there.</summary>
    [Fact]
    public async Task Gateway_ThatCannotBeReached_SaysWhy()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(100), async time =>
        {
            await using var client = new KvClient(
                new KvClientOptions { Endpoints = ["http://127.0.0.1:1"], Gateway = true, Timeout = time }, new PausedConnector(), ClientRuntime.Machine);
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(async () => await client.GetAsync("a"));
            return failure.Message.Contains(PausedConnector.Reason, StringComparison.Ordinal);
        });
    }

    /// <summary>A command that read one key waited for the map of all shards first.</summary>
    [Fact]
    public async Task OneRead_AtAnEndpointThatServesIt_AsksForNoMap()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using (var writer = cluster.Connect())
            await writer.PutAsync("a", "1");
        cluster.Nodes[0].MapMayGo = new TaskCompletionSource().Task;
        await using var reader = ForOneRead(cluster, Eventually.Limit);
        Assert.Equal("1", (await reader.GetAsync("a")).Value.ToUtf8String());
    }

    [Fact]
    public async Task OneRead_AtAnEndpointThatDoesNotLeadTheShard_GoesToTheLeader()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        await using (var writer = cluster.Connect())
            await writer.PutAsync("z", "1");
        await using var reader = ForOneRead(cluster, Eventually.Limit);
        Assert.Equal("1", (await reader.GetAsync("z")).Value.ToUtf8String());
        Assert.Contains(cluster.Nodes[0].Calls, static call => call.Method == V1.Method.Get);
        Assert.Contains(cluster.Nodes[1].CallsAsLeader, static call => call.Method == V1.Method.Get);
    }

    /// <summary>The endpoint may be a node that is cut off from the others, and then the read must not spend all of its time there.</summary>
    [Fact]
    public async Task OneRead_AtAnEndpointThatIsSilent_GoesToTheLeaderInTime()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        await using (var writer = cluster.Connect())
            await writer.PutAsync("z", "1");
        cluster.Nodes[0].Script = static _ => Task.FromResult<Reply?>(FakeNode.Silence);
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(2), async time =>
        {
            await using var reader = ForOneRead(cluster, time);
            try
            {
                return (await reader.GetAsync("z")).Found;
            }
            catch (KvUnavailableException)
            {
                return false;
            }
        });
    }

    /// <summary>A router that is being stopped, and one of an older version, refuse what the leader serves.</summary>
    [Theory]
    [InlineData(StatusCode.Unavailable, "CLIENT_CLOSED")]
    [InlineData(StatusCode.Unimplemented, "UNSUPPORTED_BY_PEER")]
    public async Task OneRead_ThatTheEndpointCannotServe_GoesToTheLeader(StatusCode code, string reason)
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        await using (var writer = cluster.Connect())
            await writer.PutAsync("z", "1");
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, code, reason));
        await using var reader = ForOneRead(cluster, Eventually.Limit);
        Assert.Equal("1", (await reader.GetAsync("z")).Value.ToUtf8String());
    }

    [Fact]
    public async Task OneRead_ThatTheEndpointCallsInvalid_GoesNowhereElse()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].MapMayGo = new TaskCompletionSource().Task;
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.InvalidArgument, "BAD_REQUEST"));
        await using var reader = ForOneRead(cluster, Eventually.Limit);
        await Assert.ThrowsAsync<KvInvalidRequestException>(async () => await reader.GetAsync("a"));
        Assert.Single(cluster.Nodes[0].Calls);
    }

    private static KvClient ForOneRead(FakeCluster cluster, TimeSpan timeout) =>
        new(new KvClientOptions { Endpoints = [cluster.Endpoint], IsForOneRead = true, Timeout = timeout });

    /// <summary>The node was not told of a call that was given up, and kept its place until the answer.</summary>
    [Fact]
    public async Task Call_GivenUpByItsCaller_IsCancelledAtTheNode()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var node = cluster.Nodes[0];
        node.Script = static call => Task.FromResult<Reply?>(call.Method == V1.Method.Get ? FakeNode.Silence : null);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = Eventually.Limit });
        using var givesUp = new CancellationTokenSource();
        var get = client.GetAsync("a", cancellationToken: givesUp.Token).AsTask();
        await Eventually.TrueAsync(() => !node.Calls.IsEmpty, "the call is at the node");
        await givesUp.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => get);
        await Eventually.TrueAsync(() => !node.Cancelled.IsEmpty, "the node hears that nobody waits");
        Assert.Equal(node.Calls.Single().Id, node.Cancelled.Single());
        // The stream is in order, so this put follows the cancellation.
        await client.PutAsync("a", "1");
    }

    /// <summary>
    /// A host that is down does not refuse connections; it does not answer. A client that was not connected to it waited for the end of each attempt,
    /// two seconds, before it tried another node. Here an attempt never ends, so the call is answered only if another node is tried at the same time.
    /// </summary>
    [Fact]
    public async Task Call_LeaderDropsPackets_TriesTheOthersMeanwhile()
    {
        using var gone = await DroppingHost.StartAsync();
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        cluster.AddressesTold[1] = gone.Address;
        await using var client = Patient([cluster.Nodes[1].Address]);
        await client.PutAsync("q", "1");
        cluster.Lead(1, node: 2);
        await client.PutAsync("a", "1");
        Assert.Equal("1", Encoding.UTF8.GetString((await client.GetAsync("a")).Value.Span));
        Assert.Equal(1, cluster.Applied["a"]);
    }

    /// <summary>The same with an endpoint: the map came from the next endpoint only after the attempt had ended.</summary>
    [Fact]
    public async Task Map_FirstEndpointDropsPackets_ComesFromTheNextOne()
    {
        using var gone = await DroppingHost.StartAsync();
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = Patient([gone.Address, cluster.Endpoint]);
        await client.PutAsync("a", "1");
        Assert.Equal(1, cluster.Applied["a"]);
    }

    /// <summary>If there is no other node to try, a call waits for a slow connection and is sent once.</summary>
    [Fact]
    public async Task Call_OnlyNodeSlowToConnect_WaitsForIt()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var gone = await DroppingHost.StartAsync();
        cluster.AddressesTold[1] = gone.Address;
        var connector = new KeepingConnector(new GrpcConnector(new KvCluster.Tls.TlsConnector(files: null), 16, NullLogger.Instance, Timeout.InfiniteTimeSpan));
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = Eventually.Limit }, connector, ClientRuntime.Machine);
        var put = client.PutAsync("a", "1").AsTask();
        await Eventually.TrueAsync(() => connector.Connections.ContainsKey(gone.Address), "the client has gone to the node");
        // A call that could go to another node would have been sent there by now. This one waits.
        var impatient = await connector.Connections[gone.Address].CallAsync(
            PendingCall.Rent(V1.Method.Get, Google.Protobuf.ByteString.Empty, new(0), 0, long.MaxValue), CancellationToken.None);
        Assert.Contains("no connection within", impatient.Failure, StringComparison.Ordinal);
        Assert.False(put.IsCompleted);
        gone.ForwardTo(new Uri(cluster.Endpoint).Port);
        await put;
        Assert.Equal(1, cluster.Applied["a"]);
    }

    private static KvClient Patient(string[] endpoints) => new(
        new KvClientOptions { Endpoints = endpoints, Timeout = Eventually.Limit },
        new GrpcConnector(new KvCluster.Tls.TlsConnector(files: null), 16, NullLogger.Instance, Timeout.InfiniteTimeSpan),
        ClientRuntime.Machine);

    /// <summary>A call made while the connection was closing kept its place. Later calls waited for places until their deadlines.</summary>
    [Fact]
    public async Task Calls_OfAClosedConnection_AllEndAtOnce()
    {
        var connection = new NodeConnection(
            "http://127.0.0.1:1", new KvCluster.Tls.TlsConnector(files: null), callsInFlightMax: 4, NullLogger.Instance, TimeSpan.FromSeconds(2));
        await connection.DisposeAsync();
        for (var number = 0; number < 10; number++)
        {
            var call = PendingCall.Rent(V1.Method.Get, Google.Protobuf.ByteString.Empty, new(0), 0, long.MaxValue);
            var answer = await connection.CallAsync(call, CancellationToken.None).AsTask().WaitAsync(Eventually.Limit);
            Assert.Equal("the client is closed", answer.Failure);
        }
    }

    [Fact]
    public async Task Refusal_WithRetryInfo_IsNotRepeatedSooner()
    {
        var asked = TimeSpan.FromMilliseconds(400);
        await using var cluster = await FakeCluster.StartAsync(1);
        var times = new List<long>();
        cluster.Nodes[0].Script = call =>
        {
            times.Add(Stopwatch.GetTimestamp());
            return Task.FromResult(times.Count == 1
                ? FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY", "no", new RetryInfo { RetryDelay = Duration.FromTimeSpan(asked) })
                : null);
        };
        await using var client = cluster.Connect();
        await client.PutAsync("a", "1");
        Assert.Equal(2, times.Count);
        Assert.True(Stopwatch.GetElapsedTime(times[0], times[1]) >= asked, $"{Stopwatch.GetElapsedTime(times[0], times[1])}");
    }

    [Fact]
    public async Task Refusal_WithRetryInfoBeyondTheDeadline_EndsAtTheDeadline()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(
            FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY", "no", new RetryInfo { RetryDelay = Duration.FromTimeSpan(TimeSpan.FromDays(1)) }));
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromSeconds(1) });
        var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask().WaitAsync(Eventually.Limit));
        // Without an answer of the node there is nothing to tell.
        TimeSpan? told = failure.Reason == KvReasons.Busy ? TimeSpan.FromDays(1) : null;
        Assert.Equal(told, failure.RetryAfter);
    }

    [Fact]
    public void RetryBudget_AllowsABurstAndThenARate()
    {
        var time = new ManualTime();
        var budget = new RetryBudget(new ClientRuntime(time, () => 0, TaskCreationOptions.None));
        Assert.Equal(1_000, Enumerable.Range(0, 5_000).Count(_ => budget.TryTake()));
        time.Advance(TimeSpan.FromMilliseconds(50));
        Assert.Equal(50, Enumerable.Range(0, 5_000).Count(_ => budget.TryTake()));
        time.Advance(TimeSpan.FromHours(1));
        Assert.Equal(1_000, Enumerable.Range(0, 5_000).Count(_ => budget.TryTake()));
    }

    /// <summary>A busy node received each waiting caller's request again at least every tenth of a second.</summary>
    [Fact]
    public async Task CallersOfABusyNode_RepeatNoMoreThanTheBudgetAllows()
    {
        const int callers = 600;
        await using var cluster = await FakeCluster.StartAsync(1);
        var node = cluster.Nodes[0];
        node.Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY"));
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(3), async time =>
        {
            var (before, since) = (node.Calls.Count, Stopwatch.StartNew());
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = time });
            await Task.WhenAll(Enumerable.Range(0, callers).Select(_ => Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("a").AsTask())));
            var asked = node.Calls.Count - before;
            // Each caller once, the burst, the rate, and twice a second for those without budget.
            Assert.InRange(asked, 0, callers + 1_000 + (since.Elapsed.TotalSeconds * (1_000 + (2 * callers))));
            return asked >= callers;
        });
    }

    private static Task<RouterHost> RouterOfAsync(FakeCluster cluster) => RouterHost.StartAsync(
        new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = [cluster.Endpoint], Timeout = Eventually.Limit },
        new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);

    private sealed class KeepingConnector(GrpcConnector inner) : INodeConnector
    {
        public ConcurrentDictionary<string, INodeConnection> Connections { get; } = new();

        public INodeConnection Connect(string address) => Connections[address] = inner.Connect(address);

        public IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken) => inner.WatchMap(address, cancellationToken);
    }

    private sealed class PausedConnector : INodeConnector, INodeConnection
    {
        public const string Reason = "its certificate is not trusted";

        public bool IsPaused => true;

        public string Failure => Reason;

        public INodeConnection Connect(string address) => this;

        public IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken) =>
            throw new InvalidOperationException("not watched with one gateway");

        public ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken) => throw new InvalidOperationException("paused");

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;
    }

    private sealed class ThrowingConnector(GrpcConnector inner) : INodeConnector
    {
        private int _asked;

        public INodeConnection Connect(string address) => inner.Connect(address);

        public IAsyncEnumerable<V1.ShardMap> WatchMap(string address, CancellationToken cancellationToken) =>
            Interlocked.Increment(ref _asked) <= 2 ? throw new InvalidOperationException("an unexpected exception")
                : inner.WatchMap(address, cancellationToken);
    }
}
