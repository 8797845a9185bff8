using System.Net;
using System.Net.Sockets;

namespace KvCluster.Tests.Client;

/// <summary>
/// A port at which connections are neither made nor refused, as at a host that is gone: its queue of connections that nobody accepts is full, and the system drops what
/// else comes, which is tried again by the other side. Until <see cref="ForwardTo"/>.
/// </summary>
internal sealed class DroppingHost : IDisposable
{
    private readonly Socket _listener = new(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
    private readonly Socket _first = new(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);

    public string Address => $"http://127.0.0.1:{((IPEndPoint)_listener.LocalEndPoint!).Port}";

    public static async Task<DroppingHost> StartAsync()
    {
        var host = new DroppingHost();
        host._listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        // A queue of none holds one.
        host._listener.Listen(0);
        await host._first.ConnectAsync(host._listener.LocalEndPoint!);
        return host;
    }

    /// <summary>Takes all connections from now on, and passes them on.</summary>
    public void ForwardTo(int port) => _ = AcceptAsync(port);

    public void Dispose()
    {
        _listener.Dispose();
        _first.Dispose();
    }

    private async Task AcceptAsync(int port)
    {
        try
        {
            while (true)
                _ = PassOnAsync(await _listener.AcceptAsync(), port);
        }
        catch (Exception failure) when (failure is SocketException or ObjectDisposedException)
        {
            // The test is over.
        }
    }

    private static async Task PassOnAsync(Socket from, int port)
    {
        using var to = new TcpClient();
        await using var near = new NetworkStream(from, ownsSocket: true);
        try
        {
            await to.ConnectAsync(IPAddress.Loopback, port);
            await Task.WhenAny(near.CopyToAsync(to.GetStream()), to.GetStream().CopyToAsync(near));
        }
        catch (Exception failure) when (failure is IOException or SocketException)
        {
            // One of the sides is gone.
        }
    }
}
