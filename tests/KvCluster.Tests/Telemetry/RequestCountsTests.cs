using System.Collections.Concurrent;
using System.Diagnostics;
using System.Diagnostics.Metrics;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Api;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;
using Microsoft.Extensions.Logging.Abstractions;
using Method = KvCluster.V1.Method;

namespace KvCluster.Tests.Telemetry;

/// <summary>Each call is counted once, with the outcome that its caller sees.</summary>
public sealed class RequestCountsTests : IAsyncLifetime
{
    private readonly NodeMetrics _metrics = new(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 1);
    private readonly MeterListener _listener = new();
    private readonly List<string?> _refused = [];
    private long _active;

    public Task InitializeAsync()
    {
        _listener.InstrumentPublished = (instrument, listens) =>
        {
            if (ReferenceEquals(instrument.Meter, _metrics.Meter) && instrument.Name is "kvcluster.node.request.refused" or "kvcluster.node.request.active")
                listens.EnableMeasurementEvents(instrument);
        };
        _listener.SetMeasurementEventCallback<long>((instrument, value, tags, _) =>
        {
            if (instrument.Name == "kvcluster.node.request.active")
                _active = value;
            else
                _refused.Add(tags.ToArray().First(static tag => tag.Key == "error.type").Value?.ToString());
        });
        _listener.Start();
        return Task.CompletedTask;
    }

    public async Task DisposeAsync()
    {
        _listener.Dispose();
        await _metrics.DisposeAsync();
    }

    /// <summary>
    /// A router first asks for a small response. Each large value that it read was counted as a refused call at the node, in addition to the call
    /// that fetched it.
    /// </summary>
    [Fact]
    public void ReadRepeatedByARouterForItsSize_IsNoRefusedCall()
    {
        new RequestWatch(_metrics, TimeProvider.System, Method.Get, 1, span: null).Refused(ApiErrors.ReplyLarge(100_000));
        CheckCounts();
        new RequestWatch(_metrics, TimeProvider.System, Method.Get, 1, span: null).Refused(ApiErrors.Busy);
        CheckCounts("BUSY");
    }

    /// <summary>A call that found no place was subtracted from the calls in progress without having been added, so their number fell below zero.</summary>
    [Fact]
    public void CallWithoutAPlace_IsRefusedAndNotInProgress()
    {
        Calls().Refused(Method.Put, ApiErrors.Busy);
        CheckCounts("BUSY");
    }

    /// <summary>
    /// A call that was not started because its deadline had passed was counted nowhere, and the span of any call that was refused so early never ended.
    /// </summary>
    [Fact]
    public void CallRefusedBeforeItIsRun_IsCountedAndItsSpanEnds()
    {
        var trace = ActivityTraceId.CreateRandom();
        var spans = new ConcurrentQueue<Activity>();
        using var listener = new ActivityListener
        {
            ShouldListenTo = static source => source.Name == NodeMetrics.Name,
            Sample = (ref ActivityCreationOptions<ActivityContext> options) =>
                options.Parent.TraceId == trace ? ActivitySamplingResult.AllDataAndRecorded : ActivitySamplingResult.None,
            ActivityStopped = span =>
            {
                if (span.TraceId == trace)
                    spans.Enqueue(span);
            },
        };
        ActivitySource.AddActivityListener(listener);
        var memory = new CallMemory(CallMemory.MebibytesMin);
        // More passes between the arrival of a call and its start than the call may take.
        var clock = new ManualTime { PerLook = TimeSpan.FromMilliseconds(10) };
        var exchange = new KvExchange(
            Calls(), new ExchangePlaces(memory.Requests), memory, clock, new Unread(), NullLogger.Instance, CancellationToken.None);
        var call = new Call { Id = 1, Method = Method.Get, TimeoutMs = 1, Traceparent = $"00-{trace}-{ActivitySpanId.CreateRandom()}-01" };
        exchange.Arrived();
        exchange.Start(CallHead.Read(call.ToByteArray()));
        CheckCounts("DEADLINE_PASSED");
        Assert.Equal("DEADLINE_PASSED", Assert.Single(spans).GetTagItem("error.type"));
    }

    /// <summary>What a router itself refuses as busy, by which an alert tells that it is overloaded, was counted nowhere.</summary>
    [Fact]
    public async Task CallWithoutAPlaceAtARouter_IsCounted()
    {
        // It has no map, so the calls that have places wait.
        await using var router = await RouterHost.StartAsync(
            new RouterOptions { Listen = "http://127.0.0.1:0", ServeAdmin = false, Seeds = ["http://127.0.0.1:1"], Timeout = Eventually.Limit },
            new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        var refused = 0L;
        using var listener = new MeterListener
        {
            InstrumentPublished = (instrument, listens) =>
            {
                if (ReferenceEquals(instrument.Meter, router.Meter) && instrument.Name == "kvcluster.router.request.refused")
                    listens.EnableMeasurementEvents(instrument);
            },
        };
        listener.SetMeasurementEventCallback<long>((_, value, _, _) => Interlocked.Add(ref refused, value));
        listener.Start();
        using var channel = GrpcChannel.ForAddress(router.Address);
        using var exchange = new Kv.KvClient(channel.Calls()).Exchange(deadline: DateTime.UtcNow + Eventually.Limit);
        var get = new GetRequest { Key = ByteString.CopyFromUtf8("k") }.ToByteString();
        const int Sent = 2_000;
        await exchange.RequestStream.WriteAsync(
            new ExchangeRequest { Calls = { Enumerable.Range(1, Sent).Select(id => new Call { Id = (ulong)id, Method = Method.Get, Request = get }) } });
        // All but as many as the reads of one shard may occupy on a stream.
        var replies = 0;
        while (replies < Sent - 1_536)
        {
            Assert.True(await exchange.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            replies += exchange.ResponseStream.Current.Replies.Count;
        }
        Assert.Equal(replies, Interlocked.Read(ref refused));
    }

    private KvCalls Calls()
    {
        var lookup = new ShardLookup(new(1), null!, _metrics.Activity.Hot);
        return new KvCalls(
            lookup, new ReadOpener(lookup, TimeProvider.System), new ReadThreads(hereMax: 1, threads: 0),
            new KeptSnapshots(TimeProvider.System, TimeSpan.FromMinutes(1)), QueryMemory.For(CallMemory.MebibytesDefault), _metrics, TimeProvider.System);
    }

    private void CheckCounts(params string[] refused)
    {
        _listener.RecordObservableInstruments();
        Assert.Equal(refused, _refused);
        Assert.Equal(0, _active);
    }

    private sealed class Unread : IServerStreamWriter<MessageBytes>
    {
        public WriteOptions? WriteOptions { get; set; }

        public Task WriteAsync(MessageBytes message) => Task.CompletedTask;
    }
}
