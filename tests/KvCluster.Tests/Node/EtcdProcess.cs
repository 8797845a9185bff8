using System.Diagnostics;
using System.Net;
using System.Net.Sockets;
using KvCluster.Tests.Grpc.Interop;

namespace KvCluster.Tests.Node;

/// <summary>A real etcd on loopback with a data folder of its own; killed when disposed.</summary>
internal sealed class EtcdProcess : IDisposable
{
    private readonly TemporaryDirectory _directory = new();
    private readonly Process _process;

    public EtcdProcess()
    {
        var (client, peer) = (FreePort(), FreePort());
        Address = $"http://127.0.0.1:{client}";
        _process = Process.Start(new ProcessStartInfo(Tools.Find("etcd")!)
        {
            ArgumentList =
            {
                "--data-dir", _directory.Path, "--name", "one", "--log-level", "error",
                "--listen-client-urls", Address, "--advertise-client-urls", Address,
                "--listen-peer-urls", $"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", $"http://127.0.0.1:{peer}",
                "--initial-cluster", $"one=http://127.0.0.1:{peer}",
            },
        })!;
    }

    public string Address { get; }

    public void Dispose()
    {
        _process.Kill();
        _process.WaitForExit();
        _process.Dispose();
        _directory.Dispose();
    }

    private static int FreePort()
    {
        using var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        return ((IPEndPoint)listener.LocalEndpoint).Port;
    }
}
