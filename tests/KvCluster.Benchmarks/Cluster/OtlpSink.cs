using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Receives everything by OTLP over HTTP, and discards it.</summary>
internal sealed class OtlpSink : IAsyncDisposable
{
    private readonly WebApplication _app;
    private int _requests;

    private OtlpSink()
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        _app = builder.Build();
        _app.Urls.Add("http://127.0.0.1:0");
        _app.Run(TakeAsync);
    }

    /// <summary>The number of requests received.</summary>
    public int Requests => Volatile.Read(ref _requests);

    /// <summary>Variables with which a program exports everything to this sink.</summary>
    public IReadOnlyDictionary<string, string> Environment => new Dictionary<string, string>
    {
        ["OTEL_EXPORTER_OTLP_ENDPOINT"] = _app.Urls.Single(),
        ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf",
        ["OTEL_METRIC_EXPORT_INTERVAL"] = "5000",
    };

    public static async Task<OtlpSink> StartAsync(CancellationToken cancellation)
    {
        var sink = new OtlpSink();
        await sink._app.StartAsync(cancellation);
        return sink;
    }

    public ValueTask DisposeAsync() => _app.DisposeAsync();

    private async Task TakeAsync(HttpContext context)
    {
        await context.Request.Body.CopyToAsync(Stream.Null);
        Interlocked.Increment(ref _requests);
    }
}
