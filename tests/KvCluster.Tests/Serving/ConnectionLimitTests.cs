using System.Net;
using System.Net.Sockets;
using Grpc.Net.Client;
using KvCluster.Serving;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Serving;

/// <summary>As many connections as a port takes, and more.</summary>
public sealed class ConnectionLimitTests
{
    private const int Limit = 8;

    /// <summary>Whoever opened many connections and sent nothing kept everybody else out, or there was no limit.</summary>
    [Fact]
    public async Task Connect_BeyondTheLimit_ClosesConnectionsThatAreNotUsed()
    {
        var builder = ServerBuilder.Create(NullLoggerFactory.Instance, new Uri("http://127.0.0.1:0"), limits: ListenerLimits.OfClients(Limit));
        builder.Services.AddGrpc();
        builder.Services.AddSingleton<EchoService>();
        await using var app = builder.Build();
        app.MapGrpcService<EchoService>();
        await app.StartAsync();
        var address = new Uri(app.Urls.Single());
        using var channel = GrpcChannel.ForAddress(address);
        var used = new Echo.EchoClient(channel);
        await used.UnaryAsync(new EchoRequest());
        var idle = new List<Socket>();
        for (var number = 0; number < 3 * Limit; number++)
        {
            var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
            await socket.ConnectAsync(IPAddress.Loopback, address.Port);
            idle.Add(socket);
        }
        // The oldest make room for the newest; the one that is used stays.
        Assert.True(await EndsAsync(idle[0]));
        await used.UnaryAsync(new EchoRequest());
        using var another = GrpcChannel.ForAddress(address);
        await new Echo.EchoClient(another).UnaryAsync(new EchoRequest());
        foreach (var socket in idle)
            socket.Dispose();
    }

    private static async Task<bool> EndsAsync(Socket socket)
    {
        try
        {
            return await socket.ReceiveAsync(new byte[1]).WaitAsync(Eventually.Limit) == 0;
        }
        catch (SocketException failure) when (failure.SocketErrorCode == SocketError.ConnectionReset)
        {
            return true;
        }
    }
}
