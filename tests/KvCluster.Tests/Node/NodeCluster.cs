using System.Diagnostics;
using System.Diagnostics.Metrics;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.Processes;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Node;

/// <summary>Nodes in this process over an embedded coordinator, on free loopback ports, in a directory of their own.</summary>
internal sealed class NodeCluster : IAsyncDisposable
{
    /// <summary>
    /// Timeouts for tests that are not about elections: a machine that stalls for some seconds must not cause one. The first leader of a new shard
    /// needs no timeout, and a node that stops transfers its leaderships.
    /// </summary>
    public static readonly ReplicationOptions Steady = new() { TimeoutMinUs = 10_000_000, TimeoutMaxUs = 20_000_000 };

    // The side of the network that talks to node 1 through its links.
    private const int Others = Network.Clients;

    private readonly TemporaryDirectory _directory = new();
    private readonly Dictionary<uint, NodeHost> _nodes = [];
    private readonly Dictionary<uint, GrpcChannel> _channels = [];
    private readonly Network _network = new();
    private Relay? _linksOfFirst;

    private NodeCluster() => Coordinator = EmbeddedCoordinator.Open(Path.Combine(_directory.Path, "coordinator"), TimeProvider.System);

    public EmbeddedCoordinator Coordinator { get; }

    public CoordinatorKeys Keys { get; } = new("local");

    /// <summary>For nodes that start from now on.</summary>
    public bool ServesAdmin { get; set; } = true;

    /// <summary>For nodes that start from now on.</summary>
    public ReplicationOptions Replication { get; set; } = new();

    /// <summary>For nodes that start from now on.</summary>
    public TimeSpan OldCopyWaitMax { get; set; } = Eventually.Limit;

    /// <summary>For nodes that start from now on.</summary>
    public TimeSpan ReadWaitMax { get; set; } = Eventually.Limit;

    /// <summary>For nodes that start from now on.</summary>
    public TimeSpan LearnerPatience { get; set; } = new NodeOptions { Node = new(1), DataDirectory = "", Listen = "" }.LearnerPatience;

    /// <summary>For all nodes.</summary>
    public KvCluster.Storage.Context.StoreOptions Storage { get; init; } = new();

    /// <summary>Starts one node whose replicas have these bounds.</summary>
    public static async Task<NodeCluster> StartAsync(KvCluster.Storage.Context.StoreOptions storage)
    {
        var cluster = new NodeCluster { Storage = storage };
        await ClusterInit.CreateAsync(cluster.Coordinator, "local", new NewCluster([new(1)], 1, []), CancellationToken.None);
        await cluster.StartNodeAsync(1);
        await cluster.LeaderOfAsync(0);
        return cluster;
    }

    /// <summary>
    /// With <see cref="Steady"/> timeouts if there are several nodes. A single node never loses a leadership and should lead again soon after a
    /// restart.
    /// </summary>
    public static Task<NodeCluster> StartAsync(int nodeCount, params byte[][] splitKeys) =>
        StartAsync(nodeCount, nodeCount == 1 ? new ReplicationOptions() : Steady, splitKeys);

    public static async Task<NodeCluster> StartAsync(int nodeCount, ReplicationOptions replication, params byte[][] splitKeys) =>
        await StartAsync(new NodeCluster { Replication = replication }, nodeCount, splitKeys);

    /// <summary>Several nodes whose replicas have these bounds.</summary>
    public static Task<NodeCluster> StartAsync(int nodeCount, ReplicationOptions replication, KvCluster.Storage.Context.StoreOptions storage) =>
        StartAsync(new NodeCluster { Replication = replication, Storage = storage }, nodeCount, []);

    /// <summary>Nodes that serve operators' calls to each other only.</summary>
    public static Task<NodeCluster> StartWithoutAdminAsync(int nodeCount) => StartAsync(new NodeCluster { ServesAdmin = false }, nodeCount, []);

    /// <summary>Nodes in a cluster whose format level in force is another than a new cluster has, as that of an earlier release.</summary>
    public static async Task<NodeCluster> StartAtFormatLevelAsync(int nodeCount, uint format)
    {
        var cluster = new NodeCluster { Replication = nodeCount == 1 ? new ReplicationOptions() : Steady };
        await CreateAsync(cluster, nodeCount, []);
        await cluster.SetFormatLevelAsync(format);
        return await StartAsync(cluster, nodeCount, []);
    }

    /// <summary>Changes the format level in force, as only an operator with etcd's own tools could.</summary>
    public async Task SetFormatLevelAsync(uint format)
    {
        var read = await Coordinator.GetAsync(Keys.Cluster, CancellationToken.None);
        var record = RecordText.Parse<ClusterRecord>(read.Value!);
        record.FormatLevel = format;
        await Coordinator.CompareAndSetAsync(Keys.Cluster, read.ModRevision, RecordText.Format(record), 0, CancellationToken.None);
    }

    private static Task<bool> CreateAsync(NodeCluster cluster, int nodeCount, byte[][] splitKeys) => ClusterInit.CreateAsync(
        cluster.Coordinator, "local", new NewCluster(
            [.. Enumerable.Range(1, nodeCount).Select(static node => new NodeId((uint)node))], Math.Min(3, nodeCount),
            [.. splitKeys.Select(key => (ReadOnlyMemory<byte>)key)]), CancellationToken.None);

    private static async Task<NodeCluster> StartAsync(NodeCluster cluster, int nodeCount, byte[][] splitKeys)
    {
        await CreateAsync(cluster, nodeCount, splitKeys);
        await Task.WhenAll(Enumerable.Range(1, nodeCount).Select(node => cluster.StartNodeAsync((uint)node)));
        return cluster;
    }

    /// <summary>
    /// A cluster whose node 1 exchanges messages with the others only through links that <see cref="HoldLinksOfFirst"/> holds. Nodes with greater ids open the
    /// streams between nodes. The tests' own calls are not held.
    /// </summary>
    public static async Task<NodeCluster> StartWithLinksToHoldAsync(int nodeCount, ReplicationOptions replication)
    {
        var cluster = new NodeCluster { Replication = replication };
        var nodes = Enumerable.Range(1, nodeCount).Select(node => (uint)node).ToArray();
        await ClusterInit.CreateAsync(
            cluster.Coordinator, "local", new NewCluster([.. nodes.Select(node => new NodeId(node))], Math.Min(3, nodeCount), []), CancellationToken.None);
        var port = FreePorts.Ten();
        cluster._linksOfFirst = new Relay(cluster._network, to: 1, port, from: Others);
        await Task.WhenAll(nodes.Select(node => node == 1
            ? cluster.StartNodeAsync(
                cluster.OptionsOf(1) with { ListenPeers = $"http://127.0.0.1:{port}", AdvertisePeers = $"http://127.0.0.1:{cluster._linksOfFirst.Port}" })
            : cluster.StartNodeAsync(node)));
        return cluster;
    }

    /// <summary>From now on holds the traffic between node 1 and the others. It arrives late, but complete and in order.</summary>
    public void HoldLinksOfFirst() => _network.Cut(1, Others);

    public void ReleaseLinksOfFirst() => _network.Heal();

    public Admin.V1.Admin.AdminClient AdminOf(uint node) => new(_channels[node]);

    /// <summary>The shard's record at the coordinator.</summary>
    public async Task<ShardRecord> RecordAsync(uint shard = 0) =>
        RecordText.Parse<ShardRecord>((await Coordinator.GetAsync(Keys.Shard(new(shard)), CancellationToken.None)).Value!);

    /// <summary>Changes the record of shard 0 at the coordinator, as its leader would.</summary>
    public async Task ChangeRecordAsync(Action<ShardRecord> change)
    {
        CompareAndSetResult set;
        do
        {
            var read = await Coordinator.GetAsync(Keys.Shard(new(0)), CancellationToken.None);
            var changed = RecordText.Parse<ShardRecord>(read.Value!);
            changed.Generation++;
            change(changed);
            set = await Coordinator.CompareAndSetAsync(Keys.Shard(new(0)), read.ModRevision, RecordText.Format(changed), 0, CancellationToken.None);
        }
        while (set.Outcome != SetOutcome.Won);
    }

    /// <summary>Waits until both followers of shard 0 replicate.</summary>
    public Task FollowedAsync() => Eventually.TrueAsync(
        async () => (await StatusOfAsync(await LeaderOfAsync(0), shard: 0)).Replicas.SingleOrDefault()?.Detail.Followers is { Count: 2 } followers
            && followers.All(static follower => follower.State == FollowerStatus.Types.State.Replicate),
        "both followers replicate");

    public string DirectoryOf(uint node) => Path.Combine(_directory.Path, $"node-{node}");

    public Task StartNodeAsync(uint node) => StartNodeAsync(OptionsOf(node));

    public async Task StopNodeAsync(uint node)
    {
        if (_channels.Remove(node, out var channel))
            channel.Dispose();
        if (_nodes.Remove(node, out var host))
            await host.StopAsync();
    }

    public string AddressOf(uint node) => _nodes[node].Address;

    public string PeerAddressOf(uint node) => _nodes[node].PeerAddress;

    public GrpcChannel ChannelOf(uint node) => _channels[node];

    /// <summary>
    /// Watches a node's metrics. After the listener is asked to record, the newest value of each is there; of a metric with several series, the first
    /// one.
    /// </summary>
    public MeterListener WatchMetrics(uint node, Dictionary<string, double> values)
    {
        var meter = _nodes[node].Meter;
        var listener = new MeterListener
        {
            InstrumentPublished = (instrument, listens) =>
            {
                if (ReferenceEquals(instrument.Meter, meter) && instrument.IsObservable)
                    listens.EnableMeasurementEvents(instrument);
            },
        };
        listener.SetMeasurementEventCallback<long>((instrument, value, _, _) => values.TryAdd(instrument.Name, value));
        listener.SetMeasurementEventCallback<double>((instrument, value, _, _) => values.TryAdd(instrument.Name, value));
        listener.Start();
        return listener;
    }

    public ShardHost ShardsOf(uint node) => _nodes[node].Shards!;

    public Kv.KvClient KvOf(uint node) => new(_channels[node].Calls());

    public async Task<NodeStatus> StatusOfAsync(uint node, bool digest = false, uint? shard = null)
    {
        var request = new GetStatusRequest { Digest = digest };
        if (shard is { } one)
            request.Shard = one;
        return (await new Cluster.ClusterClient(_channels[node].Calls()).GetStatusAsync(request)).Nodes.Single();
    }

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
                    if (replica.Role == Role.Leader)
                        return node;
                    said.Add($"node {node}: {replica.Role} {replica.Failure}");
                }
            }
            Assert.True(waited.Elapsed < Eventually.Limit, $"Shard {shard} has no leader within {Eventually.Limit}: {string.Join("; ", said)}");
            await Task.Delay(20);
        }
    }

    /// <summary>
    /// Makes the preferred node lead shard 0, for tests of one leader. From another, which leads first where the machine stalls, the leadership is taken back
    /// some seconds after the start.
    /// </summary>
    public async Task<uint> SettledLeaderAsync()
    {
        var leader = 0u;
        await Eventually.TrueAsync(async () =>
        {
            var preferred = ShardView.PreferredLeader(await RecordAsync()).Node;
            if ((leader = await LeaderOfAsync(0)) == preferred)
                return true;
            try
            {
                await AdminOf(leader).TransferAsync(new Admin.V1.TransferRequest { Shard = 0, ToNode = preferred });
            }
            catch (RpcException refused) when (refused.StatusCode is StatusCode.FailedPrecondition or StatusCode.Unavailable)
            {
                // It has not caught up yet, or the leader has not heard of it for a moment.
            }

            return false;
        }, "the preferred node leads");
        return leader;
    }

    /// <summary>Puts at the current leader, across changes of leaders.</summary>
    public Task<PutResponse> PutAsync(PutRequest request, uint shard = 0) =>
        AskLeaderAsync(kv => kv.PutAsync(request, deadline: DateTime.UtcNow + Eventually.Limit), shard);

    /// <summary>Calls the current leader, across changes of leaders and times without one, as when the machine stalls.</summary>
    public Task<T> AskLeaderAsync<T>(Func<Kv.KvClient, AsyncUnaryCall<T>> call, uint shard = 0) => Eventually.AnsweredAsync(
        async () => await call(KvOf(await LeaderOfAsync(shard))), static failure => failure.StatusCode is StatusCode.Unavailable or StatusCode.Unknown);

    public async ValueTask DisposeAsync()
    {
        foreach (var channel in _channels.Values)
            channel.Dispose();
        await Task.WhenAll(_nodes.Values.Select(node => node.DisposeAsync().AsTask()));
        if (_linksOfFirst is not null)
            await _linksOfFirst.DisposeAsync();
        await Coordinator.DisposeAsync();
        _directory.Dispose();
    }

    /// <summary>The options with which a node is started.</summary>
    public NodeOptions OptionsOf(uint node) => new()
    {
        Node = new(node), DataDirectory = DirectoryOf(node), Listen = "http://127.0.0.1:0", ServeAdmin = ServesAdmin,
        DrainTimeMax = Eventually.Limit, StopTimeMax = Eventually.Limit, OldCopyWaitMax = OldCopyWaitMax, ReadWaitMax = ReadWaitMax,
        LearnerPatience = LearnerPatience, Replication = Replication, Storage = Storage,
    };

    /// <summary>Starts a node with other options than <see cref="OptionsOf"/> has.</summary>
    public async Task StartNodeAsync(NodeOptions options)
    {
        var host = await NodeHost.StartAsync(options, Coordinator, new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None);
        var address = host.Address;
        lock (_nodes)
        {
            _nodes[options.Node.Value] = host;
            _channels[options.Node.Value] = GrpcChannel.ForAddress(address, new GrpcChannelOptions { MaxReceiveMessageSize = 32 << 20 });
        }
    }
}
