// Every metric of the client library, with its unit. The router has them too, because it calls nodes through the library. All clients of the process share
// one meter. Measured on any thread, without a lock; without a listener an instrument only costs reading a flag.
using System.Diagnostics;
using System.Diagnostics.Metrics;
using KvCluster.Telemetry;
using KvCluster.V1;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

namespace KvCluster.Client.Telemetry;

/// <summary>The instruments of all clients of this process.</summary>
internal static class ClientMetrics
{
    /// <summary>Name of the meter and of the trace source.</summary>
    public const string Name = "KvCluster.Client";

    private const string Result = "kvcluster.result";

    private static readonly HashSet<RouteCounts> Tables = [];
    private static (long Hits, long Misses, long Stale) _closed;
    private static readonly ActivitySource Source = new(Name);
    private static readonly Meter Meter = new(Name);
    private static readonly Histogram<double> Requests =
        Meter.CreateHistogram("kvcluster.client.request.duration", "s", "Duration of answered calls, retries included.", null, Buckets.Seconds);
    private static readonly Counter<long> Failed =
        Meter.CreateCounter<long>("kvcluster.client.request.failed", "{request}", "Calls that ended with an error, by reason.");
    private static readonly Counter<long> Retries = Meter.CreateCounter<long>(
        "kvcluster.client.retries", "{attempt}", "Retried attempts, by reason; HEDGED: a read that was sent to another replica, too.");
    private static readonly Counter<long> UnexpectedOnes = Meter.CreateCounter<long>(
        "kvcluster.client.unexpected", "{exception}", "Unexpected exceptions in the library's loops, which continued. The log says more.");
    private static long _mapChanges;
    private static long _connections;
    private static long _connectionsLost;

    static ClientMetrics()
    {
        Meter.CreateObservableCounter("kvcluster.client.routes", MeasureRoutes, "{key}", "Keys routed, by result: hit (in the shard of the last key or the one "
            + "after it), miss (searched in the shard map), stale (a node answered with a newer route).");
        Meter.CreateObservableCounter(
            "kvcluster.client.map.changes", static () => Volatile.Read(ref _mapChanges), "{change}", "Changes of the shard map that the client has adopted.");
        Meter.CreateObservableUpDownCounter(
            "kvcluster.client.connections", static () => Volatile.Read(ref _connections), "{connection}", "Streams to nodes that are open or being opened.");
        Meter.CreateObservableCounter("kvcluster.client.connections.lost", static () => Volatile.Read(ref _connectionsLost), "{connection}", "Streams to nodes "
            + "that broke or could not be opened.");
    }

    /// <summary>Whether anybody listens to the results of calls.</summary>
    public static bool WatchesRequests => Requests.Enabled || Failed.Enabled;

    /// <summary>Whether anybody listens to spans.</summary>
    public static bool TakesSpans => Source.HasListeners();

    /// <summary>Starts the span of a call; null if it is in no sampled trace.</summary>
    /// <param name="method">The call.</param>
    /// <param name="parent">The caller's span; default means none.</param>
    public static Activity? StartCall(Method method, ActivityContext parent) => Spans.StartCall(Source, MethodTags.NameOf(method), ActivityKind.Client, parent);

    /// <summary>Records the end of a call.</summary>
    /// <param name="method">Its method.</param>
    /// <param name="took">Its duration including repetitions.</param>
    /// <param name="error">Reason of its error; null if it succeeded.</param>
    public static void RequestEnded(Method method, TimeSpan took, string? error)
    {
        if (error is null)
            Requests.Record(took.TotalSeconds, MethodTags.Of(method));
        else
            Failed.Add(1, MethodTags.Of(method), new Tag(RpcTags.Error, error));
    }

    public static void Retried(Method method, string reason) => Retries.Add(1, MethodTags.Of(method), new Tag(RpcTags.Error, reason));

    /// <summary>Counts an unexpected exception that ended a pass of a loop: "map", "connection" or "gateway".</summary>
    public static void Unexpected(string loop) => UnexpectedOnes.Add(1, new Tag("kvcluster.loop", loop));

    public static void MapChanged() => Interlocked.Increment(ref _mapChanges);

    public static void ConnectionBegins() => Interlocked.Increment(ref _connections);

    public static void ConnectionEnded(bool isLost)
    {
        Interlocked.Decrement(ref _connections);
        if (isLost)
            Interlocked.Increment(ref _connectionsLost);
    }

    /// <summary>Includes what a table counts in the sums, until <see cref="Remove"/>.</summary>
    public static void Add(RouteCounts counts)
    {
        lock (Tables)
            Tables.Add(counts);
    }

    /// <summary>Keeps what a table has counted in the sums, so that they never decrease.</summary>
    public static void Remove(RouteCounts counts)
    {
        lock (Tables)
        {
            if (Tables.Remove(counts))
                _closed = (_closed.Hits + counts.Hits, _closed.Misses + counts.Misses, _closed.Stale + counts.Stale);
        }
    }

    private static IEnumerable<Measurement<long>> MeasureRoutes()
    {
        lock (Tables)
        {
            return
            [
                new(_closed.Hits + Tables.Sum(static counts => counts.Hits), new Tag(Result, "hit")),
                new(_closed.Misses + Tables.Sum(static counts => counts.Misses), new Tag(Result, "miss")),
                new(_closed.Stale + Tables.Sum(static counts => counts.Stale), new Tag(Result, "stale")),
            ];
        }
    }
}
