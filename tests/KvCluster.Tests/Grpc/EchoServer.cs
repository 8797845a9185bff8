using System.Collections.Concurrent;
using Grpc.AspNetCore.Server;
using Grpc.Net.Client;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.Tests.Grpc.Proto;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Grpc;

/// <summary>A server of the echo service on a free loopback port, and a channel to it.</summary>
internal sealed class EchoServer : IAsyncDisposable
{
    private readonly WebApplication _app;

    private readonly ConcurrentDictionary<string, ConnectionContext> _connections;

    private EchoServer(WebApplication app, EchoService service, GrpcChannel channel, ConcurrentDictionary<string, ConnectionContext> connections)
    {
        _connections = connections;
        _app = app;
        Service = service;
        Channel = channel;
        Client = new Echo.EchoClient(channel.Calls());
    }

    public EchoService Service { get; }

    public GrpcChannel Channel { get; }

    public Echo.EchoClient Client { get; }

    /// <summary>The number of open connections.</summary>
    public int Connections => _connections.Count;

    public int Port => new Uri(_app.Urls.Single()).Port;

    public static async Task<EchoServer> StartAsync(
        Action<GrpcServiceOptions>? configure = null,
        GrpcChannelOptions? channelOptions = null,
        Action<ListenOptions>? listen = null,
        Action<WebApplication>? map = null,
        Action<IServiceCollection>? configureServices = null)
    {
        var connections = new ConcurrentDictionary<string, ConnectionContext>();
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(System.Net.IPAddress.Loopback, 0, options =>
        {
            options.Protocols = HttpProtocols.Http2;
            listen?.Invoke(options);
            options.Use(next => async connection =>
            {
                connections[connection.ConnectionId] = connection;
                await next(connection);
                connections.TryRemove(connection.ConnectionId, out _);
            });
        }));
        builder.AddCallPolicy();
        builder.Services.AddGrpc(configure ?? (static _ => { }));
        builder.Services.AddSingleton<EchoService>();
        configureServices?.Invoke(builder.Services);
        var app = builder.Build();
        app.MapGrpcService<EchoService>();
        map?.Invoke(app);
        await app.StartAsync();
        var channel = GrpcChannel.ForAddress(app.Urls.Single(), channelOptions ?? new GrpcChannelOptions());
        var service = app.Services.GetRequiredService<EchoService>();
        service.Die = () =>
        {
            foreach (var connection in connections.Values)
                connection.Abort();
        };
        return new EchoServer(app, service, channel, connections);
    }

    public async ValueTask DisposeAsync()
    {
        Channel.Dispose();
        await _app.StopAsync(new CancellationToken(canceled: true));
        await _app.DisposeAsync();
    }
}
