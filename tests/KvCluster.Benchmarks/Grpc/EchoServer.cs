using System.Globalization;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>A server in a separate process.</summary>
internal sealed class EchoServer : IDisposable
{
    private readonly PeerProcess _peer;

    private EchoServer(PeerProcess peer, int port)
    {
        _peer = peer;
        Port = port;
    }

    public int Port { get; }

    public int Process => _peer.Id;

    /// <summary>Starts a server and waits until it listens.</summary>
    public static async Task<EchoServer> StartAsync(string system, CancellationToken cancellation)
    {
        var peer = new PeerProcess("server", system);
        return new EchoServer(peer, int.Parse(await peer.ReadLineAsync(cancellation), CultureInfo.InvariantCulture));
    }

    public void Dispose() => _peer.Dispose();
}
