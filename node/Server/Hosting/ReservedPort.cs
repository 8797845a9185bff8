// A port that the system chose, held from the moment it is known until the server listens on it. Used by NodeHost as it starts.
using System.Net;
using System.Net.Sockets;
using KvCluster.ServiceDefaults;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Node.Hosting;

/// <summary>
/// The address of a node is part of what it serves, so it must be known before its server starts. A port that was only looked up would meanwhile
/// be free to be given to anybody else.
/// </summary>
internal sealed class ReservedPort : IAsyncDisposable
{
    private readonly Socket _socket;

    /// <param name="listen">As <see cref="KestrelListener"/> takes it, with port 0.</param>
    public ReservedPort(Uri listen)
    {
        var address = IPAddress.TryParse(listen.Host.Trim('[', ']'), out var ip) ? ip : IPAddress.Loopback;
        _socket = SocketTransportOptions.CreateDefaultBoundListenSocket(new IPEndPoint(address, 0));
        Port = ((IPEndPoint)_socket.LocalEndPoint!).Port;
    }

    public int Port { get; }

    /// <summary>Has a server listen by the socket that holds the port; one that is to listen on more than its address gets the port anew.</summary>
    public void GiveTo(WebApplicationBuilder server) => server.Services.Configure<SocketTransportOptions>(sockets => sockets.CreateBoundListenSocket = endpoint =>
    {
        if (endpoint.Equals(_socket.LocalEndPoint))
            return _socket;
        _socket.Dispose();
        return SocketTransportOptions.CreateDefaultBoundListenSocket(endpoint);
    });

    public ValueTask DisposeAsync()
    {
        _socket.Dispose();
        return ValueTask.CompletedTask;
    }
}
