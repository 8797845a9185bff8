// The benchmark program as its own peer: `KvCluster.Benchmarks grpc-peer server|client ...` runs one side in a separate process, so that processor
// time can be told apart. Not for people.
using System.Globalization;
using System.Net;
using System.Text.Json;
using KvCluster.ServiceDefaults.Calls;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Hosting.Server.Features;
using Microsoft.AspNetCore.Http.Features;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>One side of a measurement.</summary>
internal static class GrpcPeer
{
    /// <summary>The first argument of a peer.</summary>
    public const string Command = "grpc-peer";

    public static async Task<int> RunAsync(string[] arguments)
    {
        switch (arguments)
        {
            case [Command, "server", var system]:
                await ServeAsync(system == GrpcSuite.Bare ? await StartBareAsync() : await StartOursAsync());
                return 0;
            case [Command, "client", var plan]:
                await CallAsync(JsonSerializer.Deserialize<EchoPlan>(plan)!);
                return 0;
            default:
                return 2;
        }
    }

    // Each line of the input gives the length of a window in milliseconds. Runs one window per line until the input ends.
    private static async Task CallAsync(EchoPlan plan)
    {
        using var load = new EchoLoad(plan);
        while (await Console.In.ReadLineAsync() is { } length)
            Console.WriteLine(JsonSerializer.Serialize(await load.RunWindowAsync(TimeSpan.FromMilliseconds(int.Parse(length, CultureInfo.InvariantCulture)))));
    }

    // Prints the port and serves until its input ends.
    private static async Task ServeAsync(int port)
    {
        Console.WriteLine(port.ToString(CultureInfo.InvariantCulture));
        await Console.In.ReadLineAsync();
    }

    private static async Task<int> StartOursAsync()
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(Listen);
        builder.AddCallPolicy();
        builder.Services.AddGrpc();
        var app = builder.Build();
        app.MapGrpcService<EchoService>();
        await app.StartAsync();
        return new Uri(app.Urls.Single()).Port;
    }

    private static async Task<int> StartBareAsync()
    {
        using var services = new ServiceCollection().AddLogging().BuildServiceProvider();
        var options = new KestrelServerOptions { ApplicationServices = services };
        Listen(options);
        var transport = new SocketTransportFactory(Options.Create(new SocketTransportOptions()), NullLoggerFactory.Instance);
        var server = new KestrelServer(Options.Create(options), transport, NullLoggerFactory.Instance);
        await server.StartAsync(new BareApplication(), CancellationToken.None);
        return new Uri(server.Features.GetRequiredFeature<IServerAddressesFeature>().Addresses.Single()).Port;
    }

    private static void Listen(KestrelServerOptions kestrel)
    {
        kestrel.Limits.MaxRequestBodySize = null; // The bare server has no code that would lift it for a stream.
        kestrel.Listen(IPAddress.Loopback, 0, listen => listen.Protocols = HttpProtocols.Http2);
    }
}
