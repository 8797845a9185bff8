using System.Diagnostics;
using System.Globalization;
using System.Net.Sockets;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>One Redis server with an append-only file that is synced before each answer, in its own directory. Killed when disposed.</summary>
internal sealed class RedisServer : IAsyncDisposable
{
    private const string Program = "redis-server";

    private readonly TemporaryDirectory _folder = new();
    private readonly Process _process;

    private RedisServer(IReadOnlyList<string> arguments)
    {
        _process = Process.Start(new ProcessStartInfo(
            Tools.Find(Program)!,
            [
                "--port", Port.ToString(CultureInfo.InvariantCulture), "--bind", "127.0.0.1", "--dir", _folder.Path, "--save", "",
                "--appendonly", "yes", "--appendfsync", "always", .. arguments,
            ])
        {
            RedirectStandardOutput = true,
        })!;
        // Read, so that the pipe does not fill up.
        _process.OutputDataReceived += static (_, _) => { };
        _process.BeginOutputReadLine();
    }

    /// <summary>Whether its program is on this machine.</summary>
    public static bool IsInstalled => Tools.Find(Program) is not null;

    public int Port { get; } = FreePorts.Ten();

    /// <summary>The process.</summary>
    public int Id => _process.Id;

    /// <summary>Starts it and waits until it serves.</summary>
    /// <param name="arguments">Further ones.</param>
    /// <param name="cancellation">Aborts the start.</param>
    public static async Task<RedisServer> StartAsync(IReadOnlyList<string> arguments, CancellationToken cancellation)
    {
        var server = new RedisServer(arguments);
        try
        {
            await server.ServesAsync(cancellation);
            return server;
        }
        catch
        {
            await server.DisposeAsync();
            throw;
        }
    }

    public async ValueTask DisposeAsync()
    {
        _process.Kill();
        await _process.WaitForExitAsync(CancellationToken.None);
        _process.Dispose();
        _folder.Dispose();
    }

    private async Task ServesAsync(CancellationToken cancellation)
    {
        while (true)
        {
            using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
            try
            {
                await socket.ConnectAsync("127.0.0.1", Port, cancellation);
                return;
            }
            catch (SocketException)
            {
                await Task.Delay(50, cancellation);
            }
        }
    }
}
