// Every metric of a router, with its unit. Those of its calls to nodes are among the client library's. Measured on any thread.
using System.Diagnostics;
using System.Diagnostics.Metrics;
using Grpc.Core;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Telemetry;
using Method = KvCluster.V1.Method;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.Router.Telemetry;

/// <summary>The instruments of one router, and its spans.</summary>
internal sealed class RouterMetrics : IDisposable
{
    /// <summary>Name of the meter and of the trace source.</summary>
    public const string Name = "KvCluster.Router";

    private static readonly ActivitySource Source = new(Name);

    private readonly Histogram<double> _requests;
    private readonly Counter<long> _refused;
    private CallMemory? _calls;
    private long _active;

    public RouterMetrics()
    {
        Meter = new Meter(Name);
        Meter.CreateObservableGauge(
            "kvcluster.router.info", static () => new Measurement<int>(1, new Tag("kvcluster.version", ProgramVersion.Full)), "{router}",
            "Always 1. The router's version is a label.");
        _requests = Meter.CreateHistogram(
            "kvcluster.router.request.duration", "s", "Duration of answered client calls, from arrival to answer.", null, Buckets.Seconds);
        _refused = Meter.CreateCounter<long>("kvcluster.router.request.refused", "{request}", "Client calls that ended with an error, by reason.");
        Meter.CreateObservableUpDownCounter("kvcluster.router.request.active", () => Interlocked.Read(ref _active), "{request}", "Client calls in progress.");
        Meter.CreateObservableUpDownCounter("kvcluster.router.connections.left", static () => ConnectionLimit.Left.Count, "{connection}", "Client connections "
            + "that have ended while the server was still at work on them. Of those that many calls were reset on, some stay until memory is collected.");
        Meter.CreateObservableUpDownCounter(
            "kvcluster.router.connections.waiting", static () => ReadingGate.OfProcess.Waiting, "{connection}",
            "Client connections that are not being read at the moment, because the thread pool of the process is busy.");
        // Exists from the start with the value 0. If a counter appeared with its first event, that increase would not be seen.
        Meter.CreateObservableCounter("kvcluster.router.calls.refused", () => Volatile.Read(ref _calls)?.CallsRefused ?? 0, "{call}", "Calls refused on "
            + "arrival because too many were open. They are counted nowhere else.");
        Meter.CreateObservableCounter("kvcluster.router.calls.gone", () => Volatile.Read(ref _calls)?.CallsGone ?? 0, "{call}", "Calls that were not begun "
            + "because their caller went away or their deadline passed while their request arrived. They are counted nowhere else.");
    }

    /// <summary>The memory whose refused calls are counted; set when the router begins to serve.</summary>
    public CallMemory Calls
    {
        set => Volatile.Write(ref _calls, value);
    }

    /// <summary>The meter, which distinguishes this router's metrics from those of another in the process.</summary>
    public Meter Meter { get; }

    /// <summary>Whether anybody listens to spans.</summary>
    public static bool TakesSpans => Source.HasListeners();

    /// <summary>
    /// Starts a call's span, as a child of the caller's span, or as a new trace if the caller has none and the sampler agrees. Null if it is not sampled.
    /// </summary>
    /// <param name="method">The call.</param>
    /// <param name="traceparent">As in the W3C header of that name; null or empty if there is none.</param>
    public static Activity? StartCall(Method method, string? traceparent)
    {
        if (!TakesSpans)
            return null;
        if (Spans.TryParse(traceparent, out var parent) || string.IsNullOrEmpty(traceparent))
            return Spans.StartCall(Source, MethodTags.NameOf(method), ActivityKind.Server, parent);
        // The caller decided not to sample it.
        return null;
    }

    /// <summary>Counts a call as begun; its end must follow.</summary>
    /// <returns>A timestamp of <see cref="Stopwatch"/>.</returns>
    public long Begin()
    {
        Interlocked.Increment(ref _active);
        return Stopwatch.GetTimestamp();
    }

    /// <summary>Records the end of a call.</summary>
    /// <param name="method">Its method.</param>
    /// <param name="began">The result of <see cref="Begin"/>.</param>
    /// <param name="span">Its span; null if it is in no trace.</param>
    /// <param name="error">Reason of its error; null if it succeeded.</param>
    /// <param name="status">Its gRPC status code.</param>
    public void End(Method method, long began, Activity? span, string? error, StatusCode status)
    {
        if (span is null)
        {
            Count(MethodTags.Of(method), began, error);
            return;
        }
        // The span is made current, so that the measurement becomes an exemplar of its trace.
        var current = Activity.Current;
        Activity.Current = span;
        Count(MethodTags.Of(method), began, error);
        Activity.Current = current;
        Spans.StopCall(span, Spans.NameOf(status), error);
    }

    /// <summary>A call was refused before it was begun.</summary>
    /// <param name="method">Its method.</param>
    /// <param name="error">Reason of its error.</param>
    public void Refused(Method method, string error) => _refused.Add(1, MethodTags.Of(method), new Tag(RpcTags.Error, error));

    /// <summary>Records the end of a scan.</summary>
    /// <param name="began">The result of <see cref="Begin"/>.</param>
    /// <param name="error">Reason of its error; null if it was read to its end.</param>
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
