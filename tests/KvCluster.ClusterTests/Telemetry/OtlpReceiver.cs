using System.Collections.Concurrent;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Receives OTLP over HTTP and keeps the messages by path.</summary>
internal sealed class OtlpReceiver : IAsyncDisposable
{
    private readonly WebApplication _app;
    private readonly ConcurrentQueue<(string Path, byte[] Body)> _messages = new();

    private OtlpReceiver()
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        _app = builder.Build();
        _app.Urls.Add("http://127.0.0.1:0");
        _app.Run(TakeAsync);
    }

    public string Address => _app.Urls.Single();

    public static async Task<OtlpReceiver> StartAsync()
    {
        var receiver = new OtlpReceiver();
        await receiver._app.StartAsync();
        return receiver;
    }

    /// <summary>Whether a message of a path contained these bytes. Names are not encoded in protobuf.</summary>
    public bool Has(string path, ReadOnlyMemory<byte> bytes) =>
        _messages.Any(message => message.Path == path && message.Body.AsSpan().IndexOf(bytes.Span) >= 0);

    /// <inheritdoc cref="Has(string, ReadOnlyMemory{byte})"/>
    public bool Has(string path, string text) => Has(path, System.Text.Encoding.UTF8.GetBytes(text));

    public ValueTask DisposeAsync() => _app.DisposeAsync();

    private async Task TakeAsync(HttpContext context)
    {
        using var body = new MemoryStream();
        await context.Request.Body.CopyToAsync(body);
        _messages.Enqueue((context.Request.Path, body.ToArray()));
    }
}
