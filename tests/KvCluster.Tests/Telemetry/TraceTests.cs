using System.Collections.Concurrent;
using System.Diagnostics;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Node;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Telemetry;

/// <summary>Traces of writes through a router and three nodes in this process.</summary>
public sealed class TraceTests : IAsyncLifetime, IDisposable
{
    private readonly ConcurrentQueue<Activity> _spans = new();
    private ActivityTraceId _trace = ActivityTraceId.CreateRandom();
    private readonly ActivityListener _listener;
    private NodeCluster _cluster = null!;
    private RouterHost _router = null!;

    public TraceTests()
    {
        // Spans of other tests in this process are not recorded, or are told apart by their trace id.
        _listener = new ActivityListener
        {
            ShouldListenTo = static source => source.Name.StartsWith("KvCluster.", StringComparison.Ordinal),
            Sample = (ref ActivityCreationOptions<ActivityContext> options) =>
                options.Parent.TraceId == _trace && options.Parent.TraceFlags == ActivityTraceFlags.Recorded ? ActivitySamplingResult.AllDataAndRecorded
                    : ActivitySamplingResult.None,
            ActivityStopped = span =>
            {
                if (span.TraceId == _trace)
                    _spans.Enqueue(span);
            },
        };
        ActivitySource.AddActivityListener(_listener);
    }

    public async Task InitializeAsync()
    {
        _cluster = await NodeCluster.StartAsync(3);
        var leader = await _cluster.LeaderOfAsync(0);
        _router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = true, Seeds = [_cluster.AddressOf(leader)], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
    }

    public async Task DisposeAsync()
    {
        await _router.DisposeAsync();
        await _cluster.DisposeAsync();
    }

    public void Dispose() => _listener.Dispose();

    [Fact]
    public async Task Put_InASampledTrace_IsFollowedFromTheRouterToTheFollowersJournals()
    {
        var caller = ActivitySpanId.CreateRandom();
        // A record committed while a follower was down, or by a leader that was then lost, has spans in fewer than three journals. Then the next put is
        // checked.
        var waited = Stopwatch.StartNew();
        do
        {
            Assert.True(waited.Elapsed < Eventually.Limit, $"Not within {Eventually.Limit}: spans of three journals.");
            _trace = ActivityTraceId.CreateRandom();
            _spans.Clear();
            await PutAsync($"00-{_trace}-{caller}-01");
        }
        while (!await IsSoonInThreeJournalsAsync());
        var router = Single("kvcluster.v1.Kv/Put", ActivityKind.Server, "KvCluster.Router");
        Assert.Equal(caller, router.ParentSpanId);
        var client = Single("kvcluster.v1.Kv/Put", ActivityKind.Client, "KvCluster.Client");
        Assert.Equal(router.SpanId, client.ParentSpanId);
        var node = Single("kvcluster.v1.Kv/Put", ActivityKind.Server, "KvCluster.Node");
        Assert.Equal(client.SpanId, node.ParentSpanId);
        Assert.Equal("OK", node.GetTagItem("rpc.response.status_code"));
        Assert.Equal("grpc", node.GetTagItem("rpc.system.name"));
        var transaction = _spans.Single(span => span.OperationName == "transaction");
        Assert.Equal(node.SpanId, transaction.ParentSpanId);
    }

    [Fact]
    public async Task Put_InAnUnsampledTrace_LeavesNoSpan()
    {
        await PutAsync($"00-{_trace}-{ActivitySpanId.CreateRandom()}-00");
        Assert.Empty(_spans);
    }

    [Fact]
    public async Task Put_OfTheLibrary_ContinuesTheCallersTrace()
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = [_router.Address], Timeout = Eventually.Limit });
        var parent = new ActivityContext(_trace, ActivitySpanId.CreateRandom(), ActivityTraceFlags.Recorded);
        using (var caller = new Activity("caller").SetParentId(parent.TraceId, parent.SpanId, parent.TraceFlags).Start())
        {
            await client.PutAsync("library", "value");
            Assert.Same(caller, Activity.Current);
        }
        await Eventually.TrueAsync(() => _spans.Any(span => span.OperationName == "transaction"), "all spans have ended");
        Assert.Single(_spans, span => span.Kind == ActivityKind.Client && span.OperationName == "kvcluster.v1.Kv/Put");
    }

    [Fact]
    public async Task Puts_MergedIntoOneTransaction_AreLinkedToIt()
    {
        // Try again if a leadership was lost, if calls were repeated because of that, or if every put found the journal idle. Puts that a busy
        // machine executes one by one are not merged.
        await Eventually.TrueAsync(
            () =>
            {
                _trace = ActivityTraceId.CreateRandom();
                _spans.Clear();
                Task.WhenAll(Enumerable.Range(0, 200).Select(index => PutAsync($"00-{_trace}-{ActivitySpanId.CreateRandom()}-01", $"key {index}"))).Wait();
                return AreSoonInTransactionsAsync(200).Result && Transactions().Any(transaction => transaction.Links.Any());
            },
            "all puts are in transactions, some of them merged");
    }

    private async Task<bool> AreSoonInTransactionsAsync(int puts)
    {
        for (var turn = 0; turn < 500 && Transactions().Sum(transaction => 1 + transaction.Links.Count()) < puts; turn++)
            await Task.Delay(5);
        return Transactions().Sum(transaction => 1 + transaction.Links.Count()) == puts;
    }

    // Two followers, or more if one acknowledged slowly and got the record again.
    private async Task<bool> IsSoonInThreeJournalsAsync()
    {
        for (var turn = 0; turn < 500; turn++)
        {
            // The span of the router, of its client and of the node.
            var calls = _spans.Count(static span => span.OperationName == "kvcluster.v1.Kv/Put");
            if (calls == 3 && Below("transaction", "journal write") == 1 && Below("transaction", "replicate", "append", "journal write") >= 2)
                return true;
            await Task.Delay(5);
        }
        return false;
    }

    private IEnumerable<Activity> Transactions() => _spans.Where(span => span.OperationName == "transaction");

    // How many chains of such spans have ended, in which each is the parent of the next.
    private int Below(params ReadOnlySpan<string> names)
    {
        var above = _spans.Where(WithName(names[0])).Select(static span => span.SpanId).ToHashSet();
        var chains = 0;
        foreach (var name in names[1..])
        {
            var below = _spans.Where(WithName(name)).Where(span => above.Contains(span.ParentSpanId)).ToList();
            above = [.. below.Select(static span => span.SpanId)];
            chains = below.Count;
        }

        return chains;
    }

    private static Func<Activity, bool> WithName(string name) => span => span.OperationName == name;

    private Activity Single(string name, ActivityKind kind, string source) =>
        Assert.Single(_spans, span => span.OperationName == name && span.Kind == kind && span.Source.Name == source);

    private async Task PutAsync(string traceparent, string key = "key")
    {
        using var channel = GrpcChannel.ForAddress(_router.Address);
        var (kv, limit) = (new Kv.KvClient(channel.Calls()), DateTime.UtcNow + Eventually.Limit);
        var put = new PutRequest { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8("value") };
        // The outcome is unknown if the leadership changed.
        await Eventually.AnsweredAsync(
            () => kv.PutAsync(put, new Metadata { { "traceparent", traceparent } }, limit).ResponseAsync,
            static failure => failure.StatusCode is StatusCode.Unavailable or StatusCode.Unknown);
    }
}
