using System.Diagnostics;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Processes;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>Three node processes and a router, started by the launcher as a user would, with one shard, in their own directory.</summary>
internal sealed class KvServers : IAsyncDisposable
{
    /// <summary>The number of nodes.</summary>
    public const int Nodes = 3;

    private static readonly TimeSpan StartLimit = TimeSpan.FromMinutes(5);

    private readonly TemporaryDirectory _folder = new();
    private readonly Process _launcher;
    private uint _leader;

    private KvServers(int port, IReadOnlyDictionary<string, string> environment)
    {
        RouterAddress = $"http://127.0.0.1:{port}";
        var start = new ProcessStartInfo(
            Tools.Built("kv-local"), ["--processes", "--data", _folder.Path, "--port", port.ToString(CultureInfo.InvariantCulture)])
        {
            RedirectStandardOutput = true,
        };
        // Its children inherit it.
        foreach (var (name, value) in environment)
            start.Environment[name] = value;
        _launcher = Process.Start(start)!;
        _launcher.OutputDataReceived += static (_, _) => { };
        _launcher.BeginOutputReadLine();
    }

    public string RouterAddress { get; }

    /// <summary>The node that leads the shard.</summary>
    public string LeaderAddress { get; private set; } = "";

    /// <summary>Nodes, router, and the launcher, which serves the coordinator.</summary>
    public IReadOnlyList<int> Processes => [_launcher.Id, .. Directory.EnumerateFiles(Run, "*.pid").Select(ProcessIn)];

    private string Run => Path.Combine(_folder.Path, "run");

    public static Task<KvServers> StartAsync(CancellationToken cancellation) => StartAsync(new Dictionary<string, string>(), cancellation);

    /// <param name="environment">Variables of the programs, in addition to those of this one.</param>
    /// <param name="cancellation">Aborts the start.</param>
    public static async Task<KvServers> StartAsync(IReadOnlyDictionary<string, string> environment, CancellationToken cancellation)
    {
        var servers = new KvServers(FreePorts.Ten(), environment);
        try
        {
            await servers.FindLeaderAsync(cancellation);
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
        // The children hold a pipe of the launcher and end with it.
        var children = Processes;
        _launcher.Kill();
        await _launcher.WaitForExitAsync();
        _launcher.Dispose();
        while (children.Any(static child => Directory.Exists($"/proc/{child.ToString(CultureInfo.InvariantCulture)}")))
            await Task.Delay(50);
        _folder.Dispose();
    }

    /// <summary>Finds the current leader.</summary>
    public Task FindLeaderAsync(CancellationToken cancellation) => UntilAsync(
        status =>
        {
            if (status.Nodes.FirstOrDefault(static node => node.Replicas.Any(static replica => replica.Role == Role.Leader)) is not { } leader)
                return false;
            (LeaderAddress, _leader) = (leader.Address, leader.Node);
            return true;
        },
        "leader", cancellation);

    /// <summary>Waits until the replicas of all nodes have what is committed now, and finds the leader.</summary>
    public async Task ReplicatedAsync(CancellationToken cancellation)
    {
        ulong? goal = null;
        await UntilAsync(
            status =>
            {
                var replicas = status.Nodes.SelectMany(static node => node.Replicas).Where(static one => one.Role is Role.Leader or Role.Follower).ToList();
                if (replicas.Count < Nodes)
                    return false;
                goal ??= replicas.Max(static one => one.Committed?.Change ?? 0);
                return replicas.TrueForAll(one => one.Applied?.Change >= goal);
            },
            "complete replica on each node", cancellation);
        await FindLeaderAsync(cancellation);
    }

    /// <summary>Kills the leader that was found, as a crash does. The launcher starts it again.</summary>
    public void KillLeader()
    {
        using var process = Process.GetProcessById(ProcessIn(Path.Combine(Run, string.Create(CultureInfo.InvariantCulture, $"node-{_leader}.pid"))));
        process.Kill();
    }

    private static int ProcessIn(string file) => int.Parse(File.ReadAllText(file), CultureInfo.InvariantCulture);

    private async Task UntilAsync(Func<GetStatusResponse, bool> holds, string what, CancellationToken cancellation)
    {
        using var channel = GrpcChannel.ForAddress(RouterAddress);
        var client = new V1.Cluster.ClusterClient(channel);
        var started = Stopwatch.GetTimestamp();
        while (true)
        {
            try
            {
                if (holds(await client.GetStatusAsync(new GetStatusRequest(), deadline: DateTime.UtcNow.AddSeconds(1), cancellationToken: cancellation)))
                    return;
            }
            catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded
                && Stopwatch.GetElapsedTime(started) < StartLimit && !_launcher.HasExited)
            {
                // Not started yet, or during an election.
            }

            if (Stopwatch.GetElapsedTime(started) > StartLimit)
                throw new TimeoutException($"No {what} within {StartLimit.TotalSeconds} s.");
            await Task.Delay(100, cancellation);
        }
    }
}
