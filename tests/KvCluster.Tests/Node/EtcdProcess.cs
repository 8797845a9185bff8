using System.Diagnostics;
using System.Net;
using System.Net.Sockets;

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
        _process = Process.Start(new ProcessStartInfo(PathOf("etcd")!)
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

    /// <summary>Where a program is: in PATH, or where the tools beside the repository unpack it. Null: nowhere.</summary>
    public static string? PathOf(string program)
    {
        var folders = (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator, StringSplitOptions.RemoveEmptyEntries);
        return folders.Select(folder => Path.Combine(folder, program)).FirstOrDefault(File.Exists) ?? UnpackedPathOf(program);
    }

    public void Dispose()
    {
        _process.Kill();
        _process.WaitForExit();
        _process.Dispose();
        _directory.Dispose();
    }

    private static string? UnpackedPathOf(string program)
    {
        var install = Path.Combine(House.House.Root, "..", "shared", "tools", "install");
        if (!File.Exists(install))
            return null;
        using var installing = Process.Start(new ProcessStartInfo(install) { RedirectStandardOutput = true })!;
        var folder = installing.StandardOutput.ReadToEnd().Trim();
        installing.WaitForExit();
        var path = Path.Combine(folder, program);
        return installing.ExitCode == 0 && File.Exists(path) ? path : null;
    }

    private static int FreePort()
    {
        using var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        return ((IPEndPoint)listener.LocalEndpoint).Port;
    }
}
