// Every metric of a router, with its unit; what it does as a client of the nodes is in the client library's. Measured on any thread.
using System.Diagnostics;
using System.Diagnostics.Metrics;
using Grpc.Core;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Telemetry;
using Method = KvCluster.V1.Method;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.Router.Telemetry;

/// <summary>The instruments of one router, and its spans.</summary>
internal sealed class RouterMetrics : IDisposable
{
    /// <summary>Name of the meter, and of the source of traces.</summary>
    public const string Name = "KvCluster.Router";

    private static readonly ActivitySource Source = new(Name);

    private readonly Histogram<double> _requests;
    private readonly Counter<long> _refused;
    private CallMemory? _calls;
    private long _active;

    public RouterMetrics()
    {
        Meter = new Meter(Name);
        _requests = Meter.CreateHistogram("kvcluster.router.request.duration", "s", "Calls of clients that were answered, from their arrival.", null, Buckets.Seconds);
        _refused = Meter.CreateCounter<long>("kvcluster.router.request.refused", "{request}", "Calls of clients that ended with an error, by its reason.");
        Meter.CreateObservableUpDownCounter("kvcluster.router.request.active", () => Interlocked.Read(ref _active), "{request}", "Calls of clients under way.");
        Meter.CreateObservableUpDownCounter("kvcluster.router.connections.waiting", static () => ReadingGate.OfProcess.Waiting, "{connection}", "Connections of clients that are not read for now, as the thread pool of the process has much to do.");
        // There from the start with 0: what began to exist with its first event would not be seen to rise.
        Meter.CreateObservableCounter("kvcluster.router.calls.refused", () => Volatile.Read(ref _calls)?.CallsRefused ?? 0, "{call}", "Calls refused on arrival, as too many were open; counted nowhere else.");
    }

    /// <summary>Where calls find a place, or none; set when the router begins to serve.</summary>
    public CallMemory Calls
    {
        set => Volatile.Write(ref _calls, value);
    }

    /// <summary>The meter, to tell this router's from another's in the process.</summary>
    public Meter Meter { get; }

    /// <summary>Whether anybody takes spans.</summary>
    public static bool TakesSpans => Source.HasListeners();

    /// <summary>Begins a call's span: below the caller's, or, if the caller has none, a trace of its own if the sampler agrees. Null: it is not sampled.</summary>
    /// <param name="method">The call.</param>
    /// <param name="traceparent">As in W3C's header of that name; null or empty: none.</param>
    public static Activity? StartCall(Method method, string? traceparent)
    {
        if (!TakesSpans)
            return null;
        if (Spans.TryParse(traceparent, out var parent) || string.IsNullOrEmpty(traceparent))
            return Spans.StartCall(Source, MethodTags.NameOf(method), ActivityKind.Server, parent);
        // The caller decided that it is not sampled.
        return null;
    }

    /// <summary>A call began; its end follows.</summary>
    /// <returns>A timestamp of <see cref="Stopwatch"/>.</returns>
    public long Begin()
    {
        Interlocked.Increment(ref _active);
        return Stopwatch.GetTimestamp();
    }

    /// <summary>A call has ended.</summary>
    /// <param name="method">Which.</param>
    /// <param name="began">Of <see cref="Begin"/>.</param>
    /// <param name="span">Its span; null: it is in no trace.</param>
    /// <param name="error">Reason of its error; null: it was answered.</param>
    /// <param name="status">gRPC's status.</param>
    public void End(Method method, long began, Activity? span, string? error, StatusCode status)
    {
        if (span is null)
        {
            Count(MethodTags.Of(method), began, error);
            return;
        }
        // While the span is the current one, so that the measurement becomes an exemplar of its trace.
        var current = Activity.Current;
        Activity.Current = span;
        Count(MethodTags.Of(method), began, error);
        Activity.Current = current;
        Spans.StopCall(span, Spans.NameOf(status), error);
    }

    /// <summary>A scan has ended.</summary>
    /// <param name="began">Of <see cref="Begin"/>.</param>
    /// <param name="error">Reason of its error; null: it was read to its end.</param>
    public void EndScan(long began, string? error) => Count(MethodTags.Scan, began, error);

    public void Dispose() => Meter.Dispose();

    private void Count(Tag method, long began, string? error)
    {
        Interlocked.Decrement(ref _active);
        if (error is null)
            _requests.Record(Stopwatch.GetElapsedTime(began).TotalSeconds, method);
        else
            _refused.Add(1, method, new Tag(RpcTags.Error, error));
    }
}
