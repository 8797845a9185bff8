using System.Diagnostics.Metrics;
using KvCluster.Client;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.Router.Api;
using KvCluster.Router.Telemetry;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Router;

/// <summary>
/// A running router: a stateless gRPC front end. Started and stopped by kv-router and by the local cluster, each from one thread.
/// </summary>
internal sealed class RouterHost : IAsyncDisposable
{
    private static readonly TimeSpan TellInterval = TimeSpan.FromSeconds(1);

    private readonly CallRouter _calls;
    private readonly NodeChannels _channels;
    private readonly ServerTls? _tls;
    private readonly GrpcHealth _grpcHealth = new();
    private readonly ProcessHealth _health;
    private readonly RouterMetrics _metrics = new();
    private readonly MemoryReturn _memoryReturn = new();
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly RouterOptions _options;
    private Task _telling = Task.CompletedTask;
    private OwnedServer? _server;
    private volatile bool _hasMadeFirstCalls;

    private RouterHost(RouterOptions options, ProcessHealth health, ILogger log)
    {
        _log = log;
        _options = options;
        _hasMadeFirstCalls = !options.MakesFirstCalls;
        _tls = options.Tls is null ? null : new ServerTls(options.Tls, name: null, log, TimeProvider.System);
        var connector = new TlsConnector(_tls?.Files);
        var cluster = new ExpectedCluster();
        _channels = new NodeChannels(connector, cluster);
        var reached = new KvClientOptions { Endpoints = options.Seeds, Timeout = options.Timeout, Log = log };
        _calls = new CallRouter(reached, new GrpcConnector(connector, reached.CallsInFlightMax, log) { Cluster = cluster }, ClientRuntime.Machine);
        cluster.ReadFrom(_calls.Table);
        _health = health;
    }

    /// <summary>The address that it serves at: "http://host:port".</summary>
    public string Address => _server?.App.Urls.Single() ?? "";

    /// <summary>The reads with large responses.</summary>
    public LargeReplies LargeReads { get; } = new();

    /// <summary>Name of the cluster that it routes to; empty before it has a shard map.</summary>
    public string Cluster => _calls.Table.Cluster;

    /// <summary>The meter of this router's metrics.</summary>
    public Meter Meter => _metrics.Meter;

    /// <summary>Starts a router, which listens when this completes. The shard map is loaded in the background, and calls wait for it.</summary>
    /// <param name="options">The router's options.</param>
    /// <param name="health">Is told the state of the router, which is ready once it has a shard map and has made its first calls, if it makes any.</param>
    /// <param name="logs">Owned by the caller.</param>
    /// <param name="cancellationToken">Cancels the start.</param>
    /// <exception cref="IOException">The port is in use (the inner exception is an AddressInUseException).</exception>
    /// <exception cref="UnusableFileException">A file of <see cref="RouterOptions.Tls"/> is not usable.</exception>
    public static async Task<RouterHost> StartAsync(RouterOptions options, ProcessHealth health, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var router = new RouterHost(options, health, logs.CreateLogger<RouterHost>());
        try
        {
            router._server = await router.ServeAsync(options, logs, cancellationToken).ConfigureAwait(false);
            health.Started(router.NotReady);
            router._grpcHealth.Follow(() => health.NotReady);
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

    // With a map the router can route, even if nobody can give it a newer one.
    private string? WhyNoMap() => _calls.Table.IsKnown ? null : $"it has no shard map yet: {_calls.MapFailure}";

    private string? NotReady() => WhyNoMap() ?? (_hasMadeFirstCalls ? null : "it makes its first calls");

    // Logs why there is no map yet, once for each reason. The first answer takes some moments, which is not logged. Then makes the first calls.
    private async Task TellAsync()
    {
        var reasons = new OncePerReason();
        for (var change = _calls.Table.NextChange(); !_calls.Table.IsKnown; change = _calls.Table.NextChange())
        {
            await Task.WhenAny(change, Task.Delay(TellInterval, _stopping.Token)).ConfigureAwait(false);
            if (_stopping.IsCancellationRequested)
                return;
            if (WhyNoMap() is { } reason && reasons.MaySay(reason))
                RouterLog.Waits(_log, reason);
        }
        RouterLog.Knows(_log, _calls.Table.Cluster);
        if (!_hasMadeFirstCalls)
            await MakeFirstCallsAsync().ConfigureAwait(false);
        _grpcHealth.Look();
    }

    private async Task MakeFirstCallsAsync()
    {
        var listened = new UriBuilder(_options.Listen) { Port = new Uri(Address).Port }.Uri;
        var own = LocalAddress.Of(listened).GetLeftPart(UriPartial.Authority);
        var cluster = new ExpectedCluster();
        cluster.ReadFrom(_calls.Table);
        // A connection of their own, which is closed afterwards. The certificate names the hosts under which clients reach the router, and not this address.
        using var channels = new NodeChannels(new TlsConnector(_tls?.Files, _tls?.Files.Current.OwnName), cluster);
        try
        {
            if (await FirstCalls.MakeAsync(channels.To(own), _stopping.Token).ConfigureAwait(false) is { } failure && !_stopping.IsCancellationRequested)
                RouterLog.FirstCallsFailed(_log, failure);
        }
        finally
        {
            _hasMadeFirstCalls = true;
        }
    }

    private async Task<OwnedServer> ServeAsync(RouterOptions options, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var listen = new Uri(options.Listen);
        var builder = ServerBuilder.Create(logs, listen, _tls, limits: ListenerLimits.OfClients(options.ConnectionsMax));
        var memory = new CallMemory(options.CallMemoryMebibytes);
        memory.AddTo(builder.Services);
        _metrics.Calls = memory;
        builder.Services.AddUnreadableRequests();
        builder.Services.AddUnservedCalls(NodeId.None);
        builder.Services.AddRequestLimits();
        builder.Services.AddSingleton(options).AddSingleton(_calls).AddSingleton(_channels).AddSingleton(_grpcHealth).AddSingleton(_metrics);
        builder.Services.AddSingleton<Forwarding>().AddSingleton(LargeReads).AddSingleton<NodeFanOut>();
        builder.Services.AddSingleton<KvProxy>().AddSingleton<ClusterProxy>().AddSingleton<AdminProxy>();
        builder.Services.AddReflection(options.ServeAdmin);
        builder.Services.AddForeignCalls(
            new ForeignCalls(() => _calls.Table.ClusterId, (deadline, gone) => _calls.WaitForMapAsync(Deadlines.Of(deadline, options.Timeout), gone)));
        builder.Services.AddGrpc(static grpc => grpc.MaxReceiveMessageSize = ListenerLimits.MessageBytesMax);
        var app = builder.Build();
        app.MapGrpcService<KvProxy>();
        app.MapGrpcService<ClusterProxy>();
        if (options.ServeAdmin)
            app.MapGrpcService<AdminProxy>();
        app.MapHealthAndReflection();
        return await OwnedServer.StartAsync(app, listen, _grpcHealth, cancellationToken).ConfigureAwait(false);
    }
}
