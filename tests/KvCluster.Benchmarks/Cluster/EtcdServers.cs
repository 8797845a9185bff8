using System.Diagnostics;
using System.Globalization;
using Etcdserverpb;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Processes;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>The peer: a three-node etcd on loopback, on the same disk, with etcd's own durability defaults.</summary>
internal sealed class EtcdServers : IAsyncDisposable
{
    private const int Nodes = 3;
    private static readonly TimeSpan StartLimit = TimeSpan.FromMinutes(5);

    private readonly RunFolder _folder = new();
    private readonly List<Process> _processes = [];
    private readonly int _port = FreePorts.Ten();

    private EtcdServers(string program)
    {
        var peers = string.Join(',', Enumerable.Range(1, Nodes).Select(node => $"n{node}={PeerAddress(node)}"));
        for (var node = 1; node <= Nodes; node++)
        {
            string[] arguments =
            [
                "--name", $"n{node}", "--data-dir", Path.Combine(_folder.Path, $"n{node}"),
                "--listen-client-urls", ClientAddress(node), "--advertise-client-urls", ClientAddress(node),
                "--listen-peer-urls", PeerAddress(node), "--initial-advertise-peer-urls", PeerAddress(node), "--initial-cluster", peers,
                "--quota-backend-bytes", (8L << 30).ToString(CultureInfo.InvariantCulture), "--log-level", "error", "--log-outputs", Path.Combine(_folder.Path, $"n{node}.log"),
            ];
            var process = Process.Start(new ProcessStartInfo(program, arguments) { RedirectStandardError = true })!;
            // What it says when it is killed at the end belongs to nobody.
            process.ErrorDataReceived += static (_, _) => { };
            process.BeginErrorReadLine();
            _processes.Add(process);
        }
    }

    public string LeaderAddress { get; private set; } = "";

    public IReadOnlyList<int> Processes => [.. _processes.Select(process => process.Id)];

    /// <summary>Starts the peer; null where its program cannot be had.</summary>
    public static async Task<EtcdServers?> StartAsync(CancellationToken cancellation)
    {
        if (Tools.Find("etcd") is not { } program)
            return null;
        var servers = new EtcdServers(program);
        try
        {
            servers.LeaderAddress = await servers.FindLeaderAsync(cancellation);
            return servers;
        }
        catch
        {
            await servers.DisposeAsync();
            throw;
        }
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var process in _processes)
        {
            process.Kill();
            await process.WaitForExitAsync();
            process.Dispose();
        }

        _folder.Dispose();
    }

    private async Task<string> FindLeaderAsync(CancellationToken cancellation)
    {
        for (var started = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(started) < StartLimit; await Task.Delay(100, cancellation))
            for (var node = 1; node <= Nodes; node++)
                if (await IsLeaderAsync(ClientAddress(node), cancellation))
                    return ClientAddress(node);
        throw new TimeoutException($"etcd has no leader after {StartLimit.TotalSeconds} s.");
    }

    private static async Task<bool> IsLeaderAsync(string address, CancellationToken cancellation)
    {
        using var channel = GrpcChannel.ForAddress(address);
        try
        {
            var status = await new Maintenance.MaintenanceClient(channel).StatusAsync(new StatusRequest(), deadline: DateTime.UtcNow.AddSeconds(1), cancellationToken: cancellation);
            return status.Leader != 0 && status.Leader == status.Header.MemberId;
        }
        catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded)
        {
            return false;
        }
    }

    private string ClientAddress(int node) => $"http://127.0.0.1:{_port + node}";

    private string PeerAddress(int node) => $"http://127.0.0.1:{_port + Nodes + node}";
}
