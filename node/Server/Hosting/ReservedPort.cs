// A port of a node, taken before its start is counted, and held until the server listens on it. Used by NodeHost during its start.
using System.Net;
using System.Net.Sockets;
using KvCluster.ServiceDefaults.Hosting;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Server.Kestrel.Transport.Sockets;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Node.Hosting;

/// <summary>
/// A node's address is part of what it serves, so it must be known before its server starts, also if the system chooses the port. If that were only looked up,
/// another process could get it meanwhile. And a port on which another process listens ends the start before anything is changed for it.
/// </summary>
internal sealed class ReservedPort : IAsyncDisposable
{
    private readonly Socket _socket;

    /// <param name="listen">An address in the form of <see cref="KestrelListener"/>. With port 0 the system chooses one.</param>
    /// <exception cref="IOException">The port is in use, or the address is not this machine's or not allowed.</exception>
    public ReservedPort(Uri listen)
    {
        var address = IPAddress.TryParse(listen.Host.Trim('[', ']'), out var ip) ? ip : IPAddress.Loopback;
        try
        {
            _socket = SocketTransportOptions.CreateDefaultBoundListenSocket(new IPEndPoint(address, listen.Port));
        }
        catch (SocketException failure)
        {
            throw new IOException($"Cannot listen at {listen.GetLeftPart(UriPartial.Authority)}: {failure.Message}.", failure);
        }
        Port = ((IPEndPoint)_socket.LocalEndPoint!).Port;
    }

    public int Port { get; }

    /// <summary>
    /// Makes a server listen on the socket that holds the port. For another endpoint, such as all addresses, that socket is closed and the endpoint bound anew.
    /// </summary>
    public void GiveTo(WebApplicationBuilder server) =>
        server.Services.Configure<SocketTransportOptions>(sockets => sockets.CreateBoundListenSocket = endpoint =>
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
