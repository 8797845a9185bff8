// The port for people and their tools: health, metrics and the console, over HTTP/1.1. A program starts it before anything else, so that it shows what the
// start waits for, and adds endpoints as its parts start.
using System.Collections.Immutable;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Admin;

/// <summary>Serves endpoints by method and path. Thread-safe.</summary>
internal sealed class AdminServer : IAsyncDisposable
{
    /// <summary>Enough for people, probes and a few scrapers.</summary>
    private const int ConnectionsMax = 256;

    /// <summary>Enough for the largest value encoded as text.</summary>
    private const int RequestBytesMax = 16 << 20;

    private ImmutableList<AdminEndpoint> _endpoints = [];
    private OwnedServer? _server;

    private AdminServer()
    {
    }

    /// <summary>The address that it serves at: "http://host:port".</summary>
    public string Address => _server?.App.Urls.Single() ?? "";

    /// <param name="listen">"http://host:port"; port 0 takes a free one.</param>
    /// <param name="logs">Owned by the caller.</param>
    /// <param name="endpoints">The endpoints that it has from the first request on.</param>
    /// <param name="cancellationToken">Cancels the start.</param>
    /// <exception cref="IOException">The port is in use.</exception>
    public static async Task<AdminServer> StartAsync(Uri listen, ILoggerFactory logs, IEnumerable<AdminEndpoint> endpoints, CancellationToken cancellationToken)
    {
        var admin = new AdminServer();
        admin.Add(endpoints);
        var builder = ServerBuilder.Create(logs, listen, protocols: HttpProtocols.Http1, limits: ListenerLimits.OfAdmin());
        builder.Services.Configure<KestrelServerOptions>(static kestrel =>
        {
            kestrel.Limits.MaxConcurrentConnections = ConnectionsMax;
            kestrel.Limits.MaxRequestBodySize = RequestBytesMax;
        });
        var app = builder.Build();
        app.Run(admin.AnswerAsync);
        admin._server = await OwnedServer.StartAsync(app, listen, health: null, cancellationToken).ConfigureAwait(false);
        return admin;
    }

    /// <summary>Adds endpoints. If two have the same method and path, the later one answers.</summary>
    public void Add(IEnumerable<AdminEndpoint> endpoints) =>
        ImmutableInterlocked.Update(ref _endpoints, static (held, added) => held.InsertRange(0, added), endpoints.ToImmutableArray());

    public ValueTask DisposeAsync() => _server?.DisposeAsync() ?? ValueTask.CompletedTask;

    private Task AnswerAsync(HttpContext context)
    {
        var path = context.Request.Path.Value ?? "/";
        var here = Volatile.Read(ref _endpoints).Where(endpoint => Stands(endpoint.Path, path)).ToList();
        if (here.Where(endpoint => HttpMethods.Equals(endpoint.Method, context.Request.Method)).MaxBy(endpoint => endpoint.Path.Length) is { } found)
            return found.Handle(context);
        return here.Count == 0
            ? AdminText.WriteAsync(context, StatusCodes.Status404NotFound, "there is no such page")
            : AdminText.WriteAsync(context, StatusCodes.Status405MethodNotAllowed, $"the method {context.Request.Method} is not allowed here");
    }

    private static bool Stands(string endpoint, string path) =>
        endpoint == path || (endpoint.EndsWith("/*", StringComparison.Ordinal) && path.StartsWith(endpoint[..^1], StringComparison.Ordinal));
}

/// <summary>An endpoint of the admin port.</summary>
/// <param name="Method">GET, POST...</param>
/// <param name="Path">For example "/metrics". "/api/*" matches everything below /api/ that no other endpoint matches better.</param>
/// <param name="Handle">Answers a request, on any thread, several at once. An exception becomes the status 500 and a log message.</param>
internal sealed record AdminEndpoint(string Method, string Path, RequestDelegate Handle);

/// <summary>Writes an answer of one line for people.</summary>
internal static class AdminText
{
    public static Task WriteAsync(HttpContext context, int status, string line)
    {
        context.Response.StatusCode = status;
        context.Response.ContentType = "text/plain; charset=utf-8";
        context.Response.Headers.CacheControl = "no-store";
        return context.Response.WriteAsync(line + "\n");
    }
}
