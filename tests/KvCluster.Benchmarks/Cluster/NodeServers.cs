using System.Diagnostics;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Configuration;
using KvCluster.Processes;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>
/// Node processes over an etcd of one member, without router and launcher, so nothing restarts a process that a measurement kills. Nodes are numbered
/// from 1.
/// </summary>
internal sealed class NodeServers : IAsyncDisposable
{
    private static readonly TimeSpan StartLimit = TimeSpan.FromMinutes(5);

    private readonly TemporaryDirectory _folder = new();
    private readonly string _data;
    private readonly Process?[] _processes;
    private readonly GrpcChannel[] _channels;
    private readonly int _port = FreePorts.Ten();
    private readonly Relay[] _relays = [];
    private readonly Relay[] _peerRelays = [];

    private NodeServers(EtcdProcesses etcd, int nodes, int shards, Network? network, string? data)
    {
        _data = data ?? _folder.Path;
        Etcd = etcd;
        Network = network;
        Shards = shards;
        _processes = new Process?[nodes];
        _channels = [.. Endpoints.Select(GrpcChannel.ForAddress)];
        if (network is not null)
        {
            _relays = [.. Enumerable.Range(1, nodes).Select(node => new Relay(network, node, _port + node))];
            _peerRelays = [.. Enumerable.Range(1, nodes).Select(node => new Relay(network, node, PeerPortOf(node)))];
        }
    }

    public EtcdProcesses Etcd { get; }

    /// <summary>The network between nodes, and between clients and nodes, or null for direct connections.</summary>
    public Network? Network { get; }

    public IReadOnlyList<string> Endpoints => [.. Enumerable.Range(1, _processes.Length).Select(AddressOf)];

    /// <summary>The number of shards.</summary>
    public int Shards { get; }

    public IReadOnlyList<int> Processes => [.. _processes.OfType<Process>().Select(process => process.Id)];

    /// <summary>Starts etcd and nodes, and waits until every shard has a leader.</summary>
    /// <param name="shards">Split at keys of four digits: "0001", "0002".</param>
    /// <param name="network">Null for direct connections.</param>
    /// <param name="data">Where the nodes' directories are created, node-1 and so on, or null for a directory that is removed afterwards.</param>
    public static async Task<NodeServers> StartAsync(int nodes, int shards, CancellationToken cancellation, Network? network = null, string? data = null)
    {
        var servers = new NodeServers(await EtcdProcesses.StartAsync(), nodes, shards, network, data);
        try
        {
            string[] split = shards == 1 ? []
                : ["--split-at", string.Join(',', Enumerable.Range(1, shards - 1).Select(shard => shard.ToString("D4", CultureInfo.InvariantCulture)))];
            var (exitCode, _, error) = await Tools.RunAsync(
                Tools.Built("kv-node"), ["init", "--coordinator", servers.Coordinator, "--nodes", string.Join(',', Enumerable.Range(1, nodes)), .. split]);
            if (exitCode != 0)
                throw new InvalidOperationException(error);
            for (var node = 1; node <= nodes; node++)
                servers.Start(node);
            await servers.AllLedAsync(except: 0, cancellation);
            return servers;
        }
        catch
        {
            await servers.DisposeAsync();
            throw;
        }
    }

    /// <summary>The data directory of a node.</summary>
    public string DataOf(int node) => Path.Combine(_data, $"node-{node}");

    public void Start(int node)
    {
        string[] arguments =
        [
            "run", "--node", node.ToString(CultureInfo.InvariantCulture), "--data", DataOf(node),
            "--listen", AddressOf(node), "--listen-peers", Text(PeerPortOf(node)), "--coordinator", Coordinator, "--serve-admin", "--until-stdin-ends",
            "--memory-budget-mib", NodeOptions.MemoryBudgetOfEach(_processes.Length).ToString(CultureInfo.InvariantCulture),
            .. Network is null ? (string[])[] : ["--advertise", Text(_relays[node - 1].Port), "--advertise-peers", Text(_peerRelays[node - 1].Port)],
        ];
        var process = Process.Start(new ProcessStartInfo(
            Tools.Built("kv-node"), arguments) { RedirectStandardInput = true, RedirectStandardOutput = true, RedirectStandardError = true })!;
        process.OutputDataReceived += static (_, _) => { };
        process.ErrorDataReceived += static (_, _) => { };
        process.BeginOutputReadLine();
        process.BeginErrorReadLine();
        _processes[node - 1] = process;
        Network?.SetProcess(node, process.Id);
    }

    public Admin.V1.Admin.AdminClient AdminOf(int node) => new(_channels[node - 1]);

    /// <summary>A node's replica of shard 0. Null if the node does not answer or has not opened it.</summary>
    public async Task<ReplicaStatus?> ReplicaAsync(int node, CancellationToken cancellation) =>
        (await ReplicasAsync(node, new GetStatusRequest { Shard = 0 }, cancellation)).SingleOrDefault();

    /// <summary>Waits until a node has opened its replicas of all shards.</summary>
    public async Task AllOpenAsync(int node, CancellationToken cancellation)
    {
        for (var started = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(started) < StartLimit; await Task.Delay(20, cancellation))
            if ((await ReplicasAsync(node, new GetStatusRequest(), cancellation)).Count(replica => replica.Role != Role.Opening) == Shards)
                return;
        throw new TimeoutException($"Node {node} has not opened its replicas of {Shards} shards after {StartLimit.TotalSeconds} s.");
    }

    public async Task KillAsync(int node)
    {
        using var process = _processes[node - 1]!;
        _processes[node - 1] = null;
        process.Kill();
        await process.WaitForExitAsync();
    }

    /// <summary>Waits until every shard has a leader among the nodes that answer, and returns how many each node leads.</summary>
    /// <param name="except">A node that is not asked.</param>
    public async Task<IReadOnlyDictionary<int, int>> AllLedAsync(int except, CancellationToken cancellation)
    {
        for (var started = Stopwatch.GetTimestamp(); Stopwatch.GetElapsedTime(started) < StartLimit; await Task.Delay(20, cancellation))
        {
            var led = new Dictionary<int, int>();
            foreach (var node in Enumerable.Range(1, _processes.Length).Where(node => node != except && _processes[node - 1] is not null))
                led[node] = await CountLedAsync(node, cancellation);
            if (led.Values.Sum() == Shards)
                return led;
        }

        throw new TimeoutException($"Not all of {Shards} shards are led after {StartLimit.TotalSeconds} s.");
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var channel in _channels)
            channel.Dispose();
        for (var node = 1; node <= _processes.Length; node++)
            if (_processes[node - 1] is not null)
                await KillAsync(node);
        foreach (var relay in _relays.Concat(_peerRelays))
            await relay.DisposeAsync();
        await Etcd.DisposeAsync();
        _folder.Dispose();
    }

    private string Coordinator => "etcd=" + string.Join(',', Etcd.Endpoints);

    private async Task<int> CountLedAsync(int node, CancellationToken cancellation) =>
        (await ReplicasAsync(node, new GetStatusRequest(), cancellation)).Count(replica => replica.Role == Role.Leader);

    private async Task<IReadOnlyList<ReplicaStatus>> ReplicasAsync(int node, GetStatusRequest request, CancellationToken cancellation)
    {
        try
        {
            var client = new V1.Cluster.ClusterClient(_channels[node - 1]);
            return (await client.GetStatusAsync(request, deadline: DateTime.UtcNow.AddSeconds(5), cancellationToken: cancellation)).Nodes[0].Replicas;
        }
        catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded)
        {
            // Not started yet.
            return [];
        }
    }

    private string AddressOf(int node) => Text(_port + node);

    private int PeerPortOf(int node) => _port + 10 + node;

    private static string Text(int port) => string.Create(CultureInfo.InvariantCulture, $"http://127.0.0.1:{port}");
}
