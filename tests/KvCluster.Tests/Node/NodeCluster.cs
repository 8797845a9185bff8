using System.Diagnostics;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>Nodes in this process over an embedded coordinator, on free loopback ports, in a folder of their own.</summary>
internal sealed class NodeCluster : IAsyncDisposable
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(60);

    private readonly TemporaryDirectory _directory = new();
    private readonly Dictionary<uint, NodeHost> _nodes = [];
    private readonly Dictionary<uint, GrpcChannel> _channels = [];

    private NodeCluster() => Coordinator = EmbeddedCoordinator.Open(Path.Combine(_directory.Path, "coordinator"), TimeProvider.System);

    public EmbeddedCoordinator Coordinator { get; }

    public CoordinatorKeys Keys { get; } = new("local");

    public static async Task<NodeCluster> StartAsync(int nodeCount, params byte[][] splitKeys)
    {
        var cluster = new NodeCluster();
        var nodes = Enumerable.Range(1, nodeCount).Select(node => (uint)node).ToArray();
        await ClusterInit.CreateAsync(cluster.Coordinator, "local", nodes, Math.Min(3, nodeCount), [.. splitKeys.Select(key => (ReadOnlyMemory<byte>)key)], CancellationToken.None);
        await Task.WhenAll(nodes.Select(node => cluster.StartNodeAsync(node)));
        return cluster;
    }

    public string DirectoryOf(uint node) => Path.Combine(_directory.Path, $"node-{node}");

    public async Task StartNodeAsync(uint node)
    {
        var options = new NodeOptions { Node = node, DataDirectory = DirectoryOf(node), Listen = "http://127.0.0.1:0", StopTimeMax = Limit };
        var host = await NodeHost.StartAsync(options, Coordinator, NullLoggerFactory.Instance, CancellationToken.None);
        lock (_nodes)
        {
            _nodes[node] = host;
            _channels[node] = GrpcChannel.ForAddress(host.Address, new GrpcChannelOptions { MaxReceiveMessageSize = 32 << 20 });
        }
    }

    public async Task StopNodeAsync(uint node)
    {
        if (_channels.Remove(node, out var channel))
            channel.Dispose();
        if (_nodes.Remove(node, out var host))
            await host.StopAsync();
    }

    public GrpcChannel ChannelOf(uint node) => _channels[node];

    public Kv.KvClient KvOf(uint node) => new(_channels[node]);

    public async Task<NodeStatus> StatusOfAsync(uint node, bool digest = false) =>
        (await new Cluster.ClusterClient(_channels[node]).GetStatusAsync(new GetStatusRequest { Digest = digest })).Nodes.Single();

    /// <summary>Waits until one of the running nodes leads a shard.</summary>
    public async Task<uint> LeaderOfAsync(uint shard)
    {
        var waited = Stopwatch.StartNew();
        while (true)
        {
            var said = new List<string>();
            foreach (var node in _nodes.Keys.Order().ToArray())
            {
                foreach (var replica in (await StatusOfAsync(node)).Replicas.Where(replica => replica.Route.Shard == shard))
                {
                    if (replica.Role == "leader")
                        return node;
                    said.Add($"node {node}: {replica.Role} {replica.Failure}");
                }
            }
            Assert.True(waited.Elapsed < Limit, $"Shard {shard} has no leader within {Limit}: {string.Join("; ", said)}");
            await Task.Delay(20);
        }
    }

    /// <summary>Puts by whatever node leads, going on through changes of leaders.</summary>
    public async Task<PutResponse> PutAsync(PutRequest request, uint shard = 0)
    {
        var waited = Stopwatch.StartNew();
        while (true)
        {
            try
            {
                return await KvOf(await LeaderOfAsync(shard)).PutAsync(request, deadline: DateTime.UtcNow + Limit);
            }
            catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable && waited.Elapsed < Limit)
            {
                await Task.Delay(20);
            }
        }
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var node in _nodes.Keys.ToArray())
            await StopNodeAsync(node);
        await Coordinator.DisposeAsync();
        _directory.Dispose();
    }
}
