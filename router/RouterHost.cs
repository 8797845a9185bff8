using System.Diagnostics.Metrics;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router.Api;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.Router;

/// <summary>
/// A running router: a gRPC front without state of its own. Started and stopped by kv-router and by the local cluster, each from one thread.
/// </summary>
internal sealed class RouterHost : IAsyncDisposable
{
    private static readonly TimeSpan TellInterval = TimeSpan.FromSeconds(1);

    private readonly CallRouter _calls;
    private readonly NodeChannels _channels;
    private readonly ServerTls? _tls;
    private readonly HealthService _grpcHealth = new();
    private readonly ProcessHealth _health;
    private readonly RouterMetrics _metrics = new();
    private readonly MemoryReturn _memoryReturn = new();
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private Task _telling = Task.CompletedTask;
    private OwnedServer? _server;

    private RouterHost(RouterOptions options, ProcessHealth health, ILogger log)
    {
        _log = log;
        _tls = options.Tls is null ? null : new ServerTls(options.Tls, name: null, log, TimeProvider.System);
        var connector = new TlsConnector(_tls?.Files);
        _channels = new NodeChannels(connector);
        var reached = new KvClientOptions { Endpoints = options.Seeds, Timeout = options.Timeout, Log = log };
        _calls = new CallRouter(reached, new GrpcConnector(connector, reached.CallsInFlightMax, log), ClientRuntime.Machine);
        _health = health;
    }

    /// <summary>Where it serves: "http://host:port".</summary>
    public string Address => _server?.App.Urls.Single() ?? "";

    /// <summary>The reads with large responses.</summary>
    public LargeReplies LargeReads { get; } = new();

    /// <summary>What this router's metrics are of.</summary>
    public Meter Meter => _metrics.Meter;

    /// <summary>Starts a router. It listens when this ends; the shard map comes in the background, and calls wait for it.</summary>
    /// <param name="options">What it needs to know.</param>
    /// <param name="health">Is told how far it is: ready with a shard map.</param>
    /// <param name="logs">Stays the caller's.</param>
    /// <param name="cancellationToken">Gives the start up.</param>
    /// <exception cref="IOException">The port is taken (the inner exception is an AddressInUseException).</exception>
    /// <exception cref="UnusableFileException">A file of <see cref="RouterOptions.Tls"/> is not usable.</exception>
    public static async Task<RouterHost> StartAsync(RouterOptions options, ProcessHealth health, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var router = new RouterHost(options, health, logs.CreateLogger<RouterHost>());
        try
        {
            router._server = await router.ServeAsync(options, logs, cancellationToken).ConfigureAwait(false);
            router._grpcHealth.SetStatus("", ServingStatus.Serving);
            health.Started(router.NotReady);
            RouterLog.Serves(router._log, router.Address);
            router._telling = router.TellAsync();
            return router;
        }
        catch
        {
            await router.DisposeAsync().ConfigureAwait(false);
            throw;
        }
    }

    public async ValueTask DisposeAsync()
    {
        _health.Stops();
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _telling.ConfigureAwait(false);
        _stopping.Dispose();
        if (_server is not null)
            await _server.DisposeAsync().ConfigureAwait(false);
        await _calls.DisposeAsync().ConfigureAwait(false);
        _channels.Dispose();
        _metrics.Dispose();
        await _memoryReturn.DisposeAsync().ConfigureAwait(false);
        if (_tls is not null)
            await _tls.DisposeAsync().ConfigureAwait(false);
    }

    // With a map it routes, also while nobody can give it a newer one.
    private string? NotReady() => _calls.Table.IsKnown ? null : $"it has no shard map yet: {_calls.MapFailure}";

    // Until there is a map: why there is none, once for each reason. A first answer takes some moments, which is no reason.
    private async Task TellAsync()
    {
        var said = "";
        while (!_calls.Table.IsKnown)
        {
            await Task.Delay(TellInterval, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            if (_stopping.IsCancellationRequested)
                return;
            if (NotReady() is { } reason && reason != said)
                RouterLog.Waits(_log, said = reason);
        }
        RouterLog.Knows(_log, _calls.Table.Cluster);
    }

    private async Task<OwnedServer> ServeAsync(RouterOptions options, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var listen = new Uri(options.Listen);
        var builder = ServerBuilder.Create(logs, listen, _tls, limits: ListenerLimits.OfClients(options.ConnectionsMax));
        var memory = new CallMemory(options.CallMemoryMebibytes);
        memory.AddTo(builder.Services);
        _metrics.Calls = memory;
        builder.Services.AddUnreadableRequests();
        builder.Services.AddRequestLimits();
        builder.Services.AddSingleton(options).AddSingleton(_calls).AddSingleton(_channels).AddSingleton(_grpcHealth).AddSingleton(_metrics);
        builder.Services.AddSingleton<Forwarding>().AddSingleton(LargeReads).AddSingleton<NodeFanOut>();
        builder.Services.AddSingleton<KvProxy>().AddSingleton<ClusterProxy>().AddSingleton<AdminProxy>();
        builder.Services.AddSingleton(new ReflectionCatalog(
            Kv.Descriptor, Cluster.Descriptor, Admin.Descriptor, Grpc.Health.V1.Health.Descriptor, Grpc.Reflection.V1.ServerReflection.Descriptor));
        builder.Services.AddGrpc(grpc => grpc.MaxReceiveMessageSize = ListenerLimits.MessageBytesMax);
        var app = builder.Build();
        app.MapGrpcService<KvProxy>();
        app.MapGrpcService<ClusterProxy>();
        app.MapGrpcService<AdminProxy>();
        app.MapGrpcService<HealthService>();
        app.MapGrpcService<ReflectionService>();
        app.MapGrpcService<ReflectionAlphaService>();
        return await OwnedServer.StartAsync(app, listen, _grpcHealth, cancellationToken).ConfigureAwait(false);
    }
}
