using KvCluster.Client;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.ServiceDefaults.Admin;

namespace KvCluster.Testing;

/// <summary>
/// A cluster in the process of a test: nodes as in production, with their coordinator, on free loopback ports and in a temporary directory. For what a client
/// in memory does not have: failovers, timeouts, programs in other processes. A node that is stopped can be started again with its data. One thread at a time,
/// except <see cref="Connect"/>.
/// </summary>
public sealed class KvTestCluster : IAsyncDisposable
{
    private const string Name = "test";
    private const int NodesMax = 9;
    private const int ReplicasMax = 3;

    /// <summary>How long a machine with much other work may take until every shard has a leader.</summary>
    private static readonly TimeSpan StartTimeMax = TimeSpan.FromMinutes(3);

    private readonly KvTestClusterOptions _options;
    private readonly KvKey[] _bounds;
    private readonly string _directory = Directory.CreateTempSubdirectory("kvcluster-").FullName;
    private readonly EmbeddedCoordinator _coordinator;

    // By the node's id less one. A node that is started again has its addresses again, so that clients find it.
    private readonly NodeHost?[] _nodes;
    private readonly Addresses?[] _addresses;

    private KvTestCluster(KvTestClusterOptions options, KvKey[] bounds)
    {
        (_options, _bounds) = (options, bounds);
        _nodes = new NodeHost?[options.Nodes];
        _addresses = new Addresses?[options.Nodes];
        _coordinator = EmbeddedCoordinator.Open(Path.Combine(_directory, "coordinator"), TimeProvider.System);
    }

    /// <summary>The addresses of the nodes, for a client of one's own. Those of a node that is stopped stay.</summary>
    public IReadOnlyList<string> Endpoints => [.. _addresses.Select(static address => address?.Clients ?? "")];

    /// <summary>Starts a cluster. Completes when every shard serves.</summary>
    /// <param name="options">Its nodes and shards; null: one node and one shard.</param>
    /// <param name="cancellationToken">Cancels the start; nothing is left then.</param>
    /// <exception cref="ArgumentException">The options are invalid.</exception>
    public static async Task<KvTestCluster> StartAsync(KvTestClusterOptions? options = null, CancellationToken cancellationToken = default)
    {
        options ??= new KvTestClusterOptions();
        KvKey[] bounds = [.. options.ShardBounds.Order()];
        if (options.Nodes is < 1 or > NodesMax)
            throw new ArgumentException($"{nameof(options.Nodes)} is {options.Nodes}; it must be from 1 to {NodesMax}.", nameof(options));
        if (bounds.Any(static bound => bound.IsEmpty) || bounds.Distinct().Count() < bounds.Length)
            throw new ArgumentException("A bound between two shards is a key, and no other bound.", nameof(options));
        var cluster = new KvTestCluster(options, bounds);
        try
        {
            await cluster.StartAllAsync(cancellationToken).ConfigureAwait(false);
            return cluster;
        }
        catch
        {
            await cluster.DisposeAsync().ConfigureAwait(false);
            throw;
        }
    }

    /// <summary>A client of the cluster, which its caller disposes.</summary>
    /// <param name="configure">Sets further options; null: none.</param>
    public KvClient Connect(Action<KvClientOptions>? configure = null)
    {
        var options = new KvClientOptions { Endpoints = Endpoints };
        configure?.Invoke(options);
        return new KvClient(options);
    }

    /// <summary>Stops a node. If it is stopped already, nothing happens.</summary>
    /// <param name="node">Its number, from 1.</param>
    /// <param name="handOver">
    /// Whether the node hands its leaderships over before, as one that is shut down. Otherwise the others notice that it is gone and elect leaders, as when its
    /// process dies.
    /// </param>
    /// <exception cref="ArgumentOutOfRangeException">There is no such node.</exception>
    public async Task StopNodeAsync(int node, bool handOver = false)
    {
        CheckNode(node);
        if (_nodes[node - 1] is not { } host)
            return;
        _nodes[node - 1] = null;
        if (handOver)
            await host.StopAsync().ConfigureAwait(false);
        else
            await host.DisposeAsync().ConfigureAwait(false);
    }

    /// <summary>Starts a node that was stopped, with its data and at its address. Completes when it listens.</summary>
    /// <param name="node">Its number, from 1.</param>
    /// <param name="cancellationToken">Cancels the start.</param>
    /// <exception cref="InvalidOperationException">The node runs.</exception>
    /// <exception cref="IOException">Another program has taken its port meanwhile.</exception>
    public async Task StartNodeAsync(int node, CancellationToken cancellationToken = default)
    {
        CheckNode(node);
        if (_nodes[node - 1] is not null)
            throw new InvalidOperationException($"Node {node} runs. Stop it first.");
        var addresses = _addresses[node - 1];
        var options = new NodeOptions
        {
            Node = new NodeId((uint)node),
            DataDirectory = Path.Combine(_directory, $"node-{node}"),
            Listen = addresses?.Clients ?? "http://127.0.0.1:0",
            ListenPeers = addresses?.Peers,
            ServeAdmin = true,
            Cluster = Name,
            MemoryBudgetMebibytes = NodeOptions.MemoryBudgetOfEach(_nodes.Length),
        };
        var host = await NodeHost.StartAsync(options, _coordinator, new ProcessHealth(), _options.Logs, cancellationToken).ConfigureAwait(false);
        (_nodes[node - 1], _addresses[node - 1]) = (host, new Addresses(host.Address, host.PeerAddress));
    }

    /// <summary>Stops the cluster and deletes its data.</summary>
    public async ValueTask DisposeAsync()
    {
        await Task.WhenAll(Enumerable.Range(1, _nodes.Length).Select(node => StopNodeAsync(node))).ConfigureAwait(false);
        await _coordinator.DisposeAsync().ConfigureAwait(false);
        if (Directory.Exists(_directory))
            Directory.Delete(_directory, recursive: true);
    }

    private async Task StartAllAsync(CancellationToken cancellationToken)
    {
        var created = new NewCluster(
            [.. Enumerable.Range(1, _nodes.Length).Select(static node => new NodeId((uint)node))], Math.Min(ReplicasMax, _nodes.Length),
            [.. _bounds.Select(static bound => bound.Memory)]);
        await ClusterInit.CreateAsync(_coordinator, Name, created, cancellationToken).ConfigureAwait(false);
        await Task.WhenAll(Enumerable.Range(1, _nodes.Length).Select(node => StartNodeAsync(node, cancellationToken))).ConfigureAwait(false);
        var client = Connect(static options => options.Timeout = StartTimeMax);
        await using (client.ConfigureAwait(false))
        {
            // The leader of each shard answers.
            foreach (var first in (KvKey[])[new byte[1], .. _bounds])
                await client.GetAsync(first, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
        }
    }

    private void CheckNode(int node)
    {
        if (node < 1 || node > _nodes.Length)
            throw new ArgumentOutOfRangeException(nameof(node), node, $"The nodes of this cluster are 1 to {_nodes.Length}.");
    }

    /// <summary>Where a node listens.</summary>
    private readonly record struct Addresses(string Clients, string Peers);
}
