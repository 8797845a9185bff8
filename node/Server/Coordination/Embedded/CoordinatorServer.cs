using KvCluster.Internal.Etcd;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>Serves an embedded coordinator to other processes through our subset of etcd's API.</summary>
internal sealed class CoordinatorServer : IAsyncDisposable
{
    private readonly OwnedServer _server;

    private CoordinatorServer(OwnedServer server) => _server = server;

    /// <summary>The address: "http://host:port".</summary>
    public string Address => _server.App.Urls.Single();

    /// <param name="coordinator">Owned by the caller, who disposes it after the server.</param>
    /// <param name="listen">"http://host:port" with an address of this machine. Port 0 chooses a free one.</param>
    /// <exception cref="IOException">The port is in use.</exception>
    public static async Task<CoordinatorServer> StartAsync(
        EmbeddedCoordinator coordinator, string listen, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var builder = ServerBuilder.Create(logs, new Uri(listen), limits: ListenerLimits.OfCoordinator());
        builder.Services.AddSingleton(coordinator);
        builder.Services.AddReflection(KV.Descriptor, Watch.Descriptor, Lease.Descriptor, Maintenance.Descriptor);
        builder.Services.AddGrpc();
        var app = builder.Build();
        app.MapGrpcService<EtcdKvService>();
        app.MapGrpcService<EtcdWatchService>();
        app.MapGrpcService<EtcdLeaseService>();
        app.MapGrpcService<EtcdMaintenanceService>();
        app.MapReflection();
        return new CoordinatorServer(await OwnedServer.StartAsync(app, new Uri(listen), health: null, cancellationToken).ConfigureAwait(false));
    }

    public ValueTask DisposeAsync() => _server.DisposeAsync();
}
