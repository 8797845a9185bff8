using Docker.DotNet;
using Docker.DotNet.Models;
using DotNet.Testcontainers.Builders;
using DotNet.Testcontainers.Containers;
using DotNet.Testcontainers.Networks;
using DotNet.Testcontainers.Volumes;
using KvCluster.Client;
using KvCluster.Processes;
using NodeStatus = KvCluster.Client.NodeStatus;

namespace KvCluster.ContainerTests;

/// <summary>
/// etcd, three nodes and a router as containers in a network of their own, with the settings of docker-compose.yml, and commands of `kv` inside that network.
/// Callers outside use the router's port on the loopback address, which the engine's proxy passes on, so that the machine's packet filter stays as it is.
/// Data is in volumes, which live until the cluster is disposed.
/// </summary>
internal sealed class ContainerCluster : IAsyncDisposable
{
    /// <summary>The keys of <see cref="Load"/> are in three shards.</summary>
    public const string SplitAt = "load/2,load/4";

    /// <summary>The exit code of `kv` where nobody served it.</summary>
    private const int Unavailable = 3;

    private const int ShardCount = 3;
    private const int RouterPort = 7400;

    // As little as a node and a router start with, and some more for a node.
    private const int NodeMemoryMiB = 512;
    private const int RouterMemoryMiB = 192;
    private const int EtcdMemoryMiB = 256;

    private static readonly uint[] NodeIds = [1, 2, 3];

    // On a busy machine a clean stop may take long. The engine kills what takes some seconds more.
    private const string StopGraceSeconds = "150";
    private const int KilledAfterSeconds = 160;
    private static readonly TimeSpan HealthInterval = TimeSpan.FromSeconds(2);
    private static readonly TimeSpan LookInterval = TimeSpan.FromMilliseconds(200);

    /// <summary>Of a call for operators. A node that stands still keeps each status waiting for so long.</summary>
    private static readonly TimeSpan OperatorTimeout = TimeSpan.FromSeconds(5);

    private readonly string _routerPort = FreePorts.Ten().ToString();
    private readonly INetwork _network = new NetworkBuilder().Build();
    private readonly IVolume _etcdData = new VolumeBuilder().Build();
    private readonly Dictionary<uint, IVolume> _nodeData = NodeIds.ToDictionary(static node => node, static _ => new VolumeBuilder().Build());
    private readonly Dictionary<uint, IContainer> _nodes;
    private readonly KvClient _operator;

    public ContainerCluster()
    {
        Etcd = BuildEtcd();
        _nodes = NodeIds.ToDictionary(static node => node, node => BuildNode(node, Engine.NodeImage));
        Router = BuildRouter(Engine.RouterImage);
        _operator = new KvClient(new KvClientOptions { Endpoints = [RouterAddress], Gateway = true, Timeout = OperatorTimeout });
    }

    /// <summary>For callers outside of the network. It stays the same when the router's container is replaced.</summary>
    public string RouterAddress => $"http://127.0.0.1:{_routerPort}";

    public IReadOnlyList<uint> Nodes => NodeIds;

    public IContainer Etcd { get; private set; }

    public IContainer Router { get; private set; }

    public IContainer Node(uint node) => _nodes[node];

    /// <summary>Starts etcd, then the nodes, then the router, each when those before it are healthy. Makes containers that do not exist.</summary>
    public async Task StartAsync()
    {
        await Etcd.StartAsync();
        // A node alone is not ready: its shards have no majority.
        await Task.WhenAll(_nodes.Values.Select(static node => node.StartAsync()));
        await Router.StartAsync();
    }

    /// <summary>Kills a container's process, as a machine does that has no memory left. The container stays.</summary>
    public static Task KillAsync(IContainer container) =>
        Engine.Api.Containers.KillContainerAsync(container.Id, new ContainerKillParameters { Signal = "KILL" });

    /// <summary>Stops a container as the engine does for an operator. The container stays.</summary>
    public static Task StopAsync(IContainer container) =>
        Engine.Api.Containers.StopContainerAsync(container.Id, new ContainerStopParameters { WaitBeforeKillSeconds = KilledAfterSeconds });

    /// <summary>Takes a node off the network, which breaks its connections without a word.</summary>
    public Task DisconnectAsync(uint node) =>
        Engine.Api.Networks.DisconnectNetworkAsync(_network.Name, new NetworkDisconnectParameters { Container = Node(node).Id, Force = true });

    /// <summary>Brings it back under its name, perhaps with another address.</summary>
    public Task ReconnectAsync(uint node) => Engine.Api.Networks.ConnectNetworkAsync(
        _network.Name,
        new NetworkConnectParameters { Container = Node(node).Id, EndpointConfig = new EndpointSettings { Aliases = [NameOf(node)] } });

    /// <summary>Removes a node's container, as it is, and starts one of an image on its data.</summary>
    public async Task ReplaceNodeAsync(uint node, string image)
    {
        await _nodes[node].DisposeAsync();
        _nodes[node] = BuildNode(node, image);
        await _nodes[node].StartAsync();
    }

    /// <inheritdoc cref="ReplaceNodeAsync"/>
    public async Task ReplaceRouterAsync(string image)
    {
        await Router.DisposeAsync();
        Router = BuildRouter(image);
        await Router.StartAsync();
    }

    /// <inheritdoc cref="ReplaceNodeAsync"/>
    public async Task ReplaceEtcdAsync()
    {
        await Etcd.DisposeAsync();
        Etcd = BuildEtcd();
        await Etcd.StartAsync();
    }

    /// <summary>Removes every container. The volumes stay, and <see cref="StartAsync"/> makes new containers on them.</summary>
    public async Task RemoveContainersAsync()
    {
        await Router.DisposeAsync();
        await Task.WhenAll(_nodes.Values.Select(static node => node.DisposeAsync().AsTask()));
        await Etcd.DisposeAsync();
        Etcd = BuildEtcd();
        foreach (var node in NodeIds)
            _nodes[node] = BuildNode(node, Engine.NodeImage);
        Router = BuildRouter(Engine.RouterImage);
    }

    /// <summary>Makes a node transfer its leaderships, as before an upgrade. It is refused for as long as the other nodes would not be a majority.</summary>
    public async Task DrainAsync(uint node)
    {
        var refusal = "";
        await Eventually.TrueAsync(
            async () =>
            {
                try
                {
                    return (await _operator.Admin.DrainAsync(node)).Kept.Count == 0;
                }
                catch (KvException refused)
                {
                    refusal = refused.Message;
                    return false;
                }
            },
            () => $"node {node} transfers its leaderships ({refusal})");
    }

    /// <summary>The node that leads the most shards.</summary>
    public async Task<uint> LeadsMostAsync()
    {
        uint most = 0;
        await UntilAsync(
            status =>
            {
                most = status.Nodes.MaxBy(static node => node.Replicas.Count(IsLeader))?.Node ?? 0;
                return most != 0;
            },
            "the nodes' status is known");
        return most;
    }

    public Task UntilServingAsync() => UntilAsync(
        static status => AllAnswer(status) && ShardsOf(status) is { Count: ShardCount } shards
            && shards.TrueForAll(static shard => shard.Count(IsLeader) == 1 && shard.Count(IsFollower) == NodeIds.Length - 1),
        "all nodes answer, and each shard has one leader and two followers");

    public Task UntilLedByOthersAsync(uint node) => UntilAsync(
        status => status.Nodes.Where(other => other.Node != node).SelectMany(static other => other.Replicas).Where(IsLeader)
            .Select(static replica => replica.Shard).Distinct().Count() == ShardCount,
        $"other nodes than node {node} lead all shards");

    /// <summary>Waits until all replicas of each shard have the same bytes. Nobody may write meanwhile.</summary>
    public Task UntilEqualAsync() => UntilAsync(
        static status => AllAnswer(status) && ShardsOf(status) is { Count: ShardCount } shards
            && shards.TrueForAll(static shard => shard.Count == NodeIds.Length && !shard[0].Digest.IsEmpty
                && shard.TrueForAll(replica => replica.DigestEtag == shard[0].DigestEtag && replica.Digest.Span.SequenceEqual(shard[0].Digest.Span))),
        "all replicas of each shard are equal",
        digest: true);

    /// <summary>Runs a command of `kv` in a container of the network, where it asks the router for the map of the shards and then calls the nodes.</summary>
    /// <param name="arguments">Of `kv`.</param>
    /// <param name="file">The content of /file in the container.</param>
    public async Task<(long ExitCode, string Output, string Error)> RunKvAsync(string[] arguments, byte[]? file = null)
    {
        // Each of these commands may be repeated. On a busy machine nobody may have answered it in time.
        var ended = (ExitCode: (long)Unavailable, Output: "", Error: "");
        await Eventually.TrueAsync(
            async () => (ended = await RunKvOnceAsync(arguments, file)).ExitCode != Unavailable,
            () => $"kv {string.Join(' ', arguments)} is answered ({ended.Error})");
        return ended;
    }

    private async Task<(long ExitCode, string Output, string Error)> RunKvOnceAsync(string[] arguments, byte[]? file)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        var builder = new ContainerBuilder(Engine.CliImage)
            .WithNetwork(_network)
            .WithEnvironment("KV_ENDPOINT", $"http://router:{RouterPort}")
            .WithCommand(arguments);
        await using var kv = (file is null ? builder : builder.WithResourceMapping(file, "/file")).Build();
        await kv.StartAsync(limit.Token);
        var code = await kv.GetExitCodeAsync(limit.Token);
        var (output, error) = await kv.GetLogsAsync(timestampsEnabled: false, ct: limit.Token);
        return (code, output.Trim(), error.Trim());
    }

    /// <summary>The last lines that each container has logged.</summary>
    public async Task<IReadOnlyList<string>> LastLinesAsync()
    {
        const int lines = 15;
        var all = new List<string>();
        var nodes = NodeIds.Select(node => (Name: NameOf(node), Container: Node(node)));
        foreach (var (name, container) in nodes.Append(("etcd", Etcd)).Append(("router", Router)))
        {
            try
            {
                var (output, error) = await container.GetLogsAsync(timestampsEnabled: false);
                var last = (output + error).Split('\n', StringSplitOptions.RemoveEmptyEntries).TakeLast(lines);
                all.AddRange(last.Select(line => $"{name}: {line.TrimEnd()}"));
            }
            catch (Exception gone) when (gone is DockerApiException or InvalidOperationException)
            {
                all.Add($"{name} has no container: {gone.Message}");
            }
        }
        return all;
    }

    public async ValueTask DisposeAsync()
    {
        await _operator.DisposeAsync();
        await Router.DisposeAsync();
        await Task.WhenAll(_nodes.Values.Select(static node => node.DisposeAsync().AsTask()));
        await Etcd.DisposeAsync();
        foreach (var volume in _nodeData.Values.Append(_etcdData))
            await volume.DisposeAsync();
        await _network.DisposeAsync();
    }

    private static string NameOf(uint node) => $"node-{node}";

    private static bool IsLeader(ReplicaStatus replica) => replica.Role == "leader";

    private static bool IsFollower(ReplicaStatus replica) => replica.Role == "follower";

    private static bool AllAnswer(ClusterStatus status) =>
        status.Nodes.Count == NodeIds.Length && status.Nodes.All(static node => node.Error.Length == 0);

    private static string RolesOf(NodeStatus node) =>
        $"node {node.Node}: {(node.Error.Length > 0 ? node.Error : string.Join(' ', node.Replicas.Select(static replica => replica.Role)))}";

    private static List<List<ReplicaStatus>> ShardsOf(ClusterStatus status) =>
        [.. status.Nodes.SelectMany(static node => node.Replicas).GroupBy(static replica => replica.Shard).Select(static shard => shard.ToList())];

    private async Task UntilAsync(Func<ClusterStatus, bool> condition, string expectation, bool digest = false)
    {
        var seen = "";
        await Eventually.TrueAsync(
            async () =>
            {
                try
                {
                    var status = await _operator.Admin.GetStatusAsync(digest);
                    seen = string.Join(", ", status.Nodes.Select(RolesOf));
                    return condition(status);
                }
                catch (KvException unanswered)
                {
                    seen = unanswered.Message;
                    return false;
                }
            },
            () => $"{expectation} ({seen})");
    }

    private IContainer BuildEtcd() => Builder(Engine.EtcdImage, "etcd", EtcdMemoryMiB)
        .WithEntrypoint("/usr/local/bin/etcd")
        .WithCommand(
            "--name=etcd", "--data-dir=/etcd-data", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://etcd:2379", "--log-level=warn")
        .WithVolumeMount(_etcdData, "/etcd-data")
        .WithCreateParameterModifier(static parameters => parameters.Healthcheck!.Test = ["CMD", "/usr/local/bin/etcdctl", "endpoint", "health"])
        .Build();

    private IContainer BuildNode(uint node, string image) => Builder(image, NameOf(node), NodeMemoryMiB)
        .WithCreateParameterModifier(Harden)
        .WithVolumeMount(_nodeData[node], "/data")
        .WithEnvironment(new Dictionary<string, string>
        {
            ["KVCLUSTER_CLUSTER"] = "containers",
            ["KVCLUSTER_NODE"] = $"{node}",
            ["KVCLUSTER_ADVERTISE"] = $"http://{NameOf(node)}:7401",
            ["KVCLUSTER_COORDINATOR"] = "etcd=http://etcd:2379",
            ["KVCLUSTER_BOOTSTRAP_NODES"] = string.Join(',', NodeIds),
            ["KVCLUSTER_REPLICAS"] = $"{NodeIds.Length}",
            ["KVCLUSTER_SPLIT_AT"] = SplitAt,
            ["KVCLUSTER_ALLOW_PLAINTEXT"] = "true",
            ["KVCLUSTER_STOP_GRACE_SECONDS"] = StopGraceSeconds,
        })
        .Build();

    private IContainer BuildRouter(string image) => Builder(image, "router", RouterMemoryMiB)
        .WithCreateParameterModifier(Harden)
        // On the loopback address, unlike what Testcontainers binds, and always the same port.
        .WithCreateParameterModifier(parameters => parameters.HostConfig!.PortBindings = new Dictionary<string, IList<PortBinding>>
        {
            [$"{RouterPort}/tcp"] = [new PortBinding { HostIP = "127.0.0.1", HostPort = _routerPort }],
        })
        .WithEnvironment(new Dictionary<string, string>
        {
            ["KVCLUSTER_NODES"] = string.Join(',', NodeIds.Select(static node => $"http://{NameOf(node)}:7401")),
            ["KVCLUSTER_SERVE_ADMIN"] = "true",
            ["KVCLUSTER_ALLOW_PLAINTEXT"] = "true",
            ["KVCLUSTER_STOP_GRACE_SECONDS"] = StopGraceSeconds,
        })
        .Build();

    private ContainerBuilder Builder(string image, string name, int memoryMiB) => new ContainerBuilder(image)
        .WithNetwork(_network)
        .WithNetworkAliases(name)
        .WithCreateParameterModifier(parameters =>
        {
            parameters.StopTimeout = TimeSpan.FromSeconds(KilledAfterSeconds);
            // The rest of the check is the image's.
            parameters.Healthcheck = new HealthcheckConfig { Interval = HealthInterval };
            parameters.HostConfig!.Memory = (long)memoryMiB << 20;
        })
        // Bounded by the time, not by the number of failed checks.
        .WithWaitStrategy(Wait.ForUnixContainer()
            .UntilContainerIsHealthy(int.MaxValue, static wait => wait.WithInterval(LookInterval).WithTimeout(Eventually.Limit)));

    private static void Harden(CreateContainerParameters parameters)
    {
        parameters.HostConfig!.ReadonlyRootfs = true;
        parameters.HostConfig.CapDrop = ["ALL"];
        parameters.HostConfig.SecurityOpt = ["no-new-privileges:true"];
    }
}
