using System.Net;
using System.Net.Sockets;

namespace KvCluster.Tests.Client;

/// <summary>
/// A port that neither accepts nor refuses connections, like a host that is down: its accept queue is full, and the system drops further attempts,
/// which the other side repeats. It stays so until <see cref="ForwardTo"/>.
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
        // A backlog of 0 holds one connection.
        host._listener.Listen(0);
        await host._first.ConnectAsync(host._listener.LocalEndPoint!);
        return host;
    }

    /// <summary>Accepts all connections from now on and forwards them.</summary>
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
            // One of the sides has closed.
        }
    }
}
