using System.Diagnostics;
using System.Globalization;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Admin.V1;
using KvCluster.Internal.V1;
using KvCluster.Processes;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.ClusterTests;

/// <summary>
/// Node processes over a real etcd. Every connection goes through a relay, so that a test can cut any of them. Nodes are numbered from 1. Disposing
/// removes everything, except that after a failed test the nodes' logs stay in the directory that its message names.
/// </summary>
internal sealed class FaultCluster : IAsyncDisposable
{
    // A stop that takes longer is aborted with its own exit code. On a busy machine nodes may take long.
    private const string StopGraceSeconds = "150";

    // The documented exit code for a coordinator that does not answer, and for a recovery that cannot be executed.
    private const int NoCoordinator = 3;

    // Why a recovery was refused because of a node of this machine, or its etcd, that took too long to answer, or that has not looked yet.
    private static readonly string[] Late = ["does not answer", "cannot tell whether its coordinator has lost the cluster", "does not take part",
        "which is therefore not lost", "No connection could be made"];

    // What each says in a log of a machine that is to blame. A leader whose disk is slow gives its shard away, although no test made the disk slow.
    private static readonly string[] Excuses = ["stalled for", "disk is slow"];

    private readonly TemporaryDirectory _folder = new();
    private readonly HostStalls _stalls = new();
    private readonly List<Relay> _relays = [];
    private readonly List<NodeProcess> _nodes = [];
    private readonly List<GrpcChannel> _channels = [];
    private readonly List<Process> _routers = [];

    private FaultCluster(EtcdProcesses etcd) => Etcd = etcd;

    // The relays run on the thread pool, as the tests do. With as many threads as there are processors, a test that blocks some for half a second would take
    // the leases of every cluster of this process.
    static FaultCluster()
    {
        const int Workers = 32;
        ThreadPool.GetMinThreads(out var workers, out var completions);
        ThreadPool.SetMinThreads(Math.Max(workers, Workers), completions);
    }

    /// <summary>The cluster's router, as a member of its network.</summary>
    public const int Router = -2;

    public EtcdProcesses Etcd { get; }

    public Network Network { get; } = new();

    /// <summary>A directory for files of a test.</summary>
    public string Folder => _folder.Path;

    /// <summary>The addresses of the nodes for clients, through relays.</summary>
    public IReadOnlyList<string> Endpoints { get; private set; } = [];

    /// <summary>The addresses of the nodes for clients, without relays.</summary>
    public IReadOnlyList<string> DirectEndpoints { get; private set; } = [];

    /// <summary>The process ids of the routers.</summary>
    public IReadOnlyList<int> RouterIds => [.. _routers.Select(router => router.Id)];

    /// <summary>The addresses of the nodes for streams of other nodes, through the network's relays.</summary>
    public IReadOnlyList<string> PeerEndpoints { get; private set; } = [];

    public IReadOnlyList<NodeProcess> Nodes => _nodes;

    private int ReplicasOfAShard => Math.Min(3, _nodes.Count);

    /// <summary>Starts etcd and the nodes, and waits until every shard is led by its preferred node and every node follows.</summary>
    /// <param name="splitAt">Keys at which shards begin, separated by commas; "" means one shard.</param>
    /// <param name="dataOf">The directory of a node's data, if it is not in the cluster's directory.</param>
    /// <param name="founders">The nodes that the cluster is created with and that start; null means all. The others join when the test starts them.</param>
    public static async Task<FaultCluster> StartAsync(
        int nodes = 3, string splitAt = "", int etcdMembers = 1, bool secure = false,
        Func<int, string?>? dataOf = null, Action<NodeProcess>? prepare = null, int? founders = null)
    {
        var cluster = new FaultCluster(await EtcdProcesses.StartAsync(etcdMembers, secure));
        try
        {
            await cluster.InitializeAsync(nodes, founders ?? nodes, splitAt, dataOf ?? (_ => null));
            foreach (var node in cluster._nodes.Take(founders ?? nodes))
            {
                prepare?.Invoke(node);
                node.Start();
            }

            await cluster.UntilEqualAsync();
            await cluster.UntilPlacedAsync();
            return cluster;
        }
        catch
        {
            await cluster.DisposeAsync();
            throw;
        }
    }

    public NodeProcess Node(int node) => _nodes[node - 1];

    public Kv.KvClient KvOf(int node) => new(_channels[node - 1].Calls());

    public Admin.V1.Admin.AdminClient AdminOf(int node) => new(_channels[node - 1]);

    public Admin.V1.Coordinator.CoordinatorClient CoordinatorOf(int node) => new(_channels[node - 1]);

    /// <summary>Starts a router, which reaches the nodes through the network's relays, and returns its address. It ends with the cluster.</summary>
    /// <param name="options">In addition to those of every router.</param>
    public string StartRouter(params string[] options)
    {
        var address = $"http://127.0.0.1:{Text(FreePorts.Ten())}";
        string[] arguments = ["run", "--listen", address, "--nodes", string.Join(',', Endpoints), "--serve-admin", "--until-stdin-ends", .. options];
        var router = Network.Start(
            Router, new ProcessStartInfo(Tools.Built("kv-router"), arguments) { RedirectStandardInput = true, RedirectStandardOutput = true });
        // Read, so that the pipe does not fill up.
        router.OutputDataReceived += static (_, _) => { };
        router.BeginOutputReadLine();
        _routers.Add(router);
        return address;
    }

    /// <summary>A node's status, or null if it does not answer.</summary>
    /// <param name="detailOf">The shard whose replica gives details, or null for short entries of all shards.</param>
    public async Task<NodeStatus?> StatusOfAsync(int node, bool digest = false, uint? detailOf = null)
    {
        var request = new GetStatusRequest { Digest = digest };
        if (detailOf is { } shard)
            request.Shard = shard;
        try
        {
            var client = new V1.Cluster.ClusterClient(_channels[node - 1].Calls());
            return (await client.GetStatusAsync(request, deadline: DateTime.UtcNow.AddSeconds(5))).Nodes.Single();
        }
        catch (RpcException)
        {
            // The caller repeats the call until its condition holds.
            return null;
        }
    }

    /// <summary>The node that reports that it leads a shard. Waits for one.</summary>
    public async Task<int> LeaderAsync(uint shard = 0, int except = 0)
    {
        var leader = 0;
        await Eventually.TrueAsync(async () =>
        {
            foreach (var node in _nodes.Where(node => node.IsRunning && node.Node != except))
                if ((await StatusOfAsync(node.Node))?.Replicas.Any(replica => replica.Route.Shard == shard && replica.Role == Role.Leader) == true)
                    leader = node.Node;
            return leader != 0;
        }, $"a leader of shard {shard}{Explain()}");
        return leader;
    }

    /// <summary>The node that reports that it leads shard 0, or 0 if each running node has reported that it does not.</summary>
    public async Task<int> LeadsNowAsync()
    {
        var leader = 0;
        await Eventually.TrueAsync(async () =>
        {
            var statuses = await Task.WhenAll(_nodes.Where(node => node.IsRunning).Select(node => StatusOfAsync(node.Node)));
            leader = (int)(statuses.FirstOrDefault(
                static status => status?.Replicas.Any(static replica => replica.Route.Shard == 0 && replica.Role == Role.Leader) == true)?.Node ?? 0);
            return leader != 0 || statuses.All(static status => status is not null);
        }, $"every node says whether it leads{Explain()}");
        return leader;
    }

    /// <summary>
    /// Waits for this many further changes, times the length of the run, while no election is possible. If a stall costs shard 0 its leader, the wait
    /// ends, because no change would follow.
    /// </summary>
    public Task UntilMoreChangesOrLeaderlessAsync(History.Histories histories, int changes)
    {
        var goal = histories.Changes + (changes * History.Histories.Length);
        return Eventually.TrueAsync(
            async () => histories.Changes >= goal || await LeadsNowAsync() == 0, $"{goal} acknowledged changes, or no leader{Explain()}",
            History.Histories.Limit * History.Histories.Length);
    }

    /// <summary>After the death of a node, waits until other nodes lead all shards.</summary>
    public Task UntilLedWithoutAsync(int dead, uint shards = 1) => Eventually.TrueAsync(async () =>
    {
        var statuses = await Task.WhenAll(_nodes.Where(node => node.IsRunning && node.Node != dead).Select(node => StatusOfAsync(node.Node)));
        return statuses.SelectMany(static status => status?.Replicas ?? [])
            .Where(static replica => replica.Role == Role.Leader).Select(static replica => replica.Route.Shard).Distinct().Count() == shards;
    }, $"all shards are led without node {dead}{Explain()}");

    /// <summary>Transfers a shard until a node leads it.</summary>
    public Task UntilLeadsAsync(int node, uint shard = 0) => Eventually.TrueAsync(async () =>
    {
        var leader = await LeaderAsync(shard);
        if (leader == node)
            return true;
        try
        {
            await AdminOf(leader).TransferAsync(new TransferRequest { Shard = shard, ToNode = (uint)node }, deadline: DateTime.UtcNow.AddSeconds(5));
        }
        catch (RpcException)
        {
            // It no longer leads, or the target is not ready yet. Ask again.
        }

        return false;
    }, $"node {node} leads shard {shard}{Explain()}");

    /// <summary>Makes a shard's leader transfer to the node that has most of its journal. Returns when another leadership has begun.</summary>
    public async Task TransferAsync(uint shard = 0)
    {
        var before = await EpochAsync(shard);
        await Eventually.TrueAsync(async () =>
        {
            try
            {
                await AdminOf(await LeaderAsync(shard)).TransferAsync(new TransferRequest { Shard = shard }, deadline: DateTime.UtcNow.AddSeconds(5));
            }
            catch (RpcException)
            {
                // No node is ready yet, or the leader has changed, which the epoch shows.
            }

            return await EpochAsync(shard) > before;
        }, $"shard {shard} is transferred{Explain()}");
    }

    /// <summary>
    /// Transfers every shard to its preferred node, as nodes do by themselves some time after another node has joined. From here on only a fault
    /// changes a leader.
    /// </summary>
    public async Task UntilPlacedAsync()
    {
        foreach (var record in await RecordsAsync())
            await UntilLeadsAsync((int)record.Replicas[(int)(record.Shard % (uint)record.Replicas.Count)].Node, record.Shard);
    }

    /// <summary>
    /// Injects a fault that may not cost the leader of shard 0 its leadership. The one excuse is that a node of this machine, or this process with the relays
    /// between them, stalled meanwhile and says so in its log. Then the fault is injected again, some times at most.
    /// </summary>
    /// <param name="fault">Gets the leader; injects the fault and removes it.</param>
    public async Task LeaderStaysAsync(Func<int, Task> fault)
    {
        const int RoundsMax = 12;
        var told = new List<string>();
        while (told.Count < RoundsMax)
        {
            var (leader, epoch) = (await LeaderAsync(), await EpochAsync());
            var since = LogLengths();
            await fault(leader);
            var (leaderAfter, epochAfter) = (await LeaderAsync(), await EpochAsync());
            if ((leader, epoch) == (leaderAfter, epochAfter))
                return;
            var stall = StallSince(since);
            told.Add($"node {leader} in epoch {epoch}, then node {leaderAfter} in epoch {epochAfter}: {stall ?? "no node stalled"}");
            if (stall is null)
                break;
        }

        Assert.Fail($"the leader did not stay: {string.Join("; ", told)}{Explain()}");
    }

    /// <summary>The number of lines that each node has printed, and this process as a client of them.</summary>
    public IReadOnlyDictionary<int, int> LogLengths()
    {
        var lengths = _nodes.ToDictionary(static node => node.Node, static node => node.Log.Count);
        lengths[Network.Clients] = _stalls.Log.Count;
        return lengths;
    }

    /// <summary>
    /// The report of a stall since then of a node, of its disk or of this process, which carries all connections. It is the only excuse for a leadership that
    /// ended without a fault. Null if nothing stalled.
    /// </summary>
    public string? StallSince(IReadOnlyDictionary<int, int> lengths) =>
        _nodes.SelectMany(node => node.Log.Skip(lengths[node.Node])).Concat(_stalls.Log.Skip(lengths[Network.Clients]))
            .FirstOrDefault(static line => Excuses.Any(excuse => line.Contains(excuse, StringComparison.Ordinal)));

    /// <summary>A node that has a replica of the shard and does not lead it.</summary>
    public async Task<int> FollowerAsync(uint shard = 0)
    {
        var leader = await LeaderAsync(shard);
        return _nodes.First(node => node.Node != leader).Node;
    }

    /// <summary>The epoch of the shard's record in etcd, which increases with every election.</summary>
    public async Task<ulong> EpochAsync(uint shard = 0) => (await RecordAsync(shard)).Epoch;

    /// <summary>The shard's record in etcd.</summary>
    /// <param name="etcd">Another one than the cluster was created in.</param>
    public async Task<ShardRecord> RecordAsync(uint shard = 0, EtcdProcesses? etcd = null) =>
        Google.Protobuf.JsonParser.Default.Parse<ShardRecord>(
            await (etcd ?? Etcd).ControlAsync("get", "--print-value-only", string.Create(CultureInfo.InvariantCulture, $"/kvcluster/local/shards/{shard}")));

    /// <summary>Waits until the nodes have equally many replicas, as the placement of replicas makes them, and none is being moved.</summary>
    public Task UntilLevelAsync() => Eventually.TrueAsync(async () =>
    {
        var replicas = (await RecordsAsync()).SelectMany(static record => record.Replicas).ToList();
        var held = _nodes.ConvertAll(node => replicas.Count(replica => replica.Node == node.Node));
        return !replicas.Any(static replica => replica.Learner) && held.Max() - held.Min() <= 1;
    }, $"the nodes have equally many replicas{Explain()}");

    /// <summary>Waits until all replicas of all shards work, on the nodes that were ever started, and hold the same tree at the same etag.</summary>
    public async Task UntilEqualAsync()
    {
        var said = "";
        await Eventually.TrueAsync(async () =>
        {
            var statuses = await Task.WhenAll(_nodes.Where(static node => node.WasStarted).Select(node => StatusOfAsync(node.Node, digest: true)));
            if (statuses.Any(status => status is null))
                return false;
            var replicas = statuses.SelectMany(status => status!.Replicas).ToList();
            said = string.Join("; ", statuses.SelectMany(status => status!.Replicas.Select(
                replica => $"node {status.Node} shard {replica.Route.Shard}: {replica.Role} {replica.Failure} {replica.DigestEtag}")));
            return replicas.GroupBy(replica => replica.Route.Shard).All(shard => shard.Any(replica => replica.Role == Role.Leader)
                    && shard.Select(replica => (replica.DigestEtag, replica.Digest)).Distinct().Count() == 1)
                && replicas.Count == ReplicasOfAShard * replicas.Select(replica => replica.Route.Shard).Distinct().Count() && replicas.Count > 0;
        }, $"equal replicas{Explain()}");
    }

    /// <summary>Waits until every node answers and every replica has a role, as after a restart.</summary>
    public Task UntilEveryReplicaWorksAsync() => Eventually.TrueAsync(async () =>
    {
        var statuses = await Task.WhenAll(_nodes.Select(node => StatusOfAsync(node.Node)));
        var shards = statuses.SelectMany(status => status?.Replicas ?? []).GroupBy(replica => replica.Route.Shard).ToList();
        return shards.Count > 0 && shards.All(shard => shard.Count() == ReplicasOfAShard && shard.Count(replica => replica.Role == Role.Leader) == 1
            && shard.Count(replica => replica.Role == Role.Follower) == ReplicasOfAShard - 1);
    }, $"every replica works{Explain()}");

    /// <summary>Waits until a node's replica of shard 0 has applied everything committed before the call.</summary>
    public async Task UntilFollowsAsync(int node)
    {
        KvCluster.Etag committed = default;
        await Eventually.TrueAsync(async () =>
        {
            if (await StatusOfAsync(await LeaderAsync(except: node)) is not { Replicas: [{ Role: Role.Leader } replica, ..] })
                return false;
            committed = EtagOf(replica.Committed);
            return true;
        }, $"what is committed{Explain()}");
        await Eventually.TrueAsync(async () => await StatusOfAsync(node) is { Replicas: [var replica] } && EtagOf(replica.Applied) >= committed, $"node {node} "
            + $"has caught up{Explain()}");
    }

    /// <summary>Makes every running node write a checkpoint.</summary>
    public async Task CheckpointAsync()
    {
        foreach (var node in _nodes.Where(node => node.IsRunning))
            await AnsweredAsync(() => AdminOf(node.Node).CheckpointAsync(new CheckpointRequest()));
    }

    /// <summary>From now on nodes move no replicas by themselves.</summary>
    public async Task PausePlacementAsync() =>
        Assert.True((await AnsweredAsync(() => AdminOf(1).PlaceAsync(new PlaceRequest { Paused = true }))).Paused);

    /// <summary>Repeats a call that is harmless to repeat until it is answered. On a busy machine etcd or a leader may not answer a node in time.</summary>
    public static Task<T> AnsweredAsync<T>(Func<AsyncUnaryCall<T>> call) => Eventually.AnsweredAsync(
        () => call().ResponseAsync,
        static failure => failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Unknown or StatusCode.FailedPrecondition);

    /// <summary>Waits until one of the nodes prints a text, after everything printed so far, and returns the node.</summary>
    public async Task<int> UntilOneSaysAsync(string text, IReadOnlyDictionary<int, int> since)
    {
        NodeProcess? said = null;
        await Eventually.TrueAsync(
            () => (said = _nodes.FirstOrDefault(node => node.Log.Skip(since[node.Node]).Any(line => line.Contains(text, StringComparison.Ordinal))))
                is not null, $"a node says '{text}'{Explain()}");
        return said!.Node;
    }

    /// <summary>Waits until a node has printed a text.</summary>
    /// <param name="since">Ignores this many lines of its log.</param>
    public Task UntilSaidAsync(int node, string text, int since = 0) =>
        Eventually.TrueAsync(
            () => Node(node).Log.Skip(since).Any(line => line.Contains(text, StringComparison.Ordinal)), $"node {node} says '{text}'{Explain()}");

    public async ValueTask DisposeAsync()
    {
        foreach (var channel in _channels)
            channel.Dispose();
        foreach (var router in _routers)
        {
            router.Kill();
            await router.WaitForExitAsync();
            router.Dispose();
        }

        foreach (var node in _nodes)
            await node.DisposeAsync();
        foreach (var relay in _relays)
            await relay.DisposeAsync();
        await Etcd.DisposeAsync();
        await _stalls.DisposeAsync();
        if (Environment.GetEnvironmentVariable("KV_KEEP_LOGS") is { Length: > 0 } kept)
            foreach (var node in _nodes)
                await File.WriteAllLinesAsync(Path.Combine(kept, $"{Path.GetFileName(Folder)}-node-{node.Node}.log"), node.Log);
        _folder.Dispose();
    }

    private async Task<IReadOnlyList<ShardRecord>> RecordsAsync() =>
    [
        .. (await Etcd.ControlAsync("get", "--prefix", "--print-value-only", "/kvcluster/local/shards/"))
            .Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(Google.Protobuf.JsonParser.Default.Parse<ShardRecord>),
    ];

    private string Explain() => $" ({Path.GetFileName(Folder)}; KV_KEEP_LOGS=folder keeps the nodes' logs)";

    private async Task InitializeAsync(int nodes, int founders, string splitAt, Func<int, string?> dataOf)
    {
        string[] security = Etcd.Certificates is { } certificates
            ? ["--coordinator-ca", certificates.AuthorityFile, "--coordinator-cert", certificates.ClientFile, "--coordinator-key", certificates.ClientKeyFile]
            : [];
        string[] split = splitAt.Length > 0 ? ["--split-at", splitAt] : [];
        string[] command = ["init", "--coordinator", "etcd="
            + string.Join(',', Etcd.Endpoints), .. security, "--nodes", string.Join(',', Enumerable.Range(1, founders)), .. split];
        await CreateAsync(command);
        var ports = FreePorts.Ten();
        for (var node = 1; node <= nodes; node++)
        {
            var front = Own(new Relay(Network, to: node, targetPort: ports + node));
            var peerFront = Own(new Relay(Network, to: node, targetPort: ports + 10 + node));
            PeerEndpoints = [.. PeerEndpoints, $"http://127.0.0.1:{Text(peerFront.Port)}"];
            var members = Etcd.Endpoints.Select(endpoint => new Uri(endpoint))
                .Select(endpoint => $"{endpoint.Scheme}://127.0.0.1:{Text(Own(new Relay(Network, Network.Etcd, endpoint.Port, node)).Port)}");
            string[] arguments =
            [
                "--listen", $"http://127.0.0.1:{Text(ports + node)}", "--advertise", $"http://127.0.0.1:{Text(front.Port)}",
                "--listen-peers", $"http://127.0.0.1:{Text(ports + 10 + node)}", "--advertise-peers", $"http://127.0.0.1:{Text(peerFront.Port)}",
                "--coordinator", "etcd=" + string.Join(',', members), .. security, "--stop-grace-seconds", StopGraceSeconds,
            ];
            _nodes.Add(new NodeProcess(node, dataOf(node) ?? Path.Combine(Folder, $"node-{Text(node)}"), arguments, Network));
            _channels.Add(GrpcChannel.ForAddress($"http://127.0.0.1:{Text(ports + node)}"));
            DirectEndpoints = [.. DirectEndpoints, $"http://127.0.0.1:{Text(ports + node)}"];
            Endpoints = [.. Endpoints, $"http://127.0.0.1:{Text(front.Port)}"];
        }
    }

    /// <summary>
    /// Rebuilds the coordinator's records by the command, which nothing may refuse but a busy machine: a node has seconds to answer, and what it says of its
    /// coordinator follows etcd's end or start a moment later.
    /// </summary>
    /// <returns>What the command printed.</returns>
    public static async Task<string> UntilRecoveredAsync(string endpoint, params string[] arguments)
    {
        var (exitCode, output, error) = (0, "", "");
        await Eventually.TrueAsync(
            async () =>
            {
                (exitCode, output, error) = await RecoverAsync(endpoint, arguments);
                Assert.True(
                    exitCode == 0 || (exitCode == NoCoordinator && Late.Any(late => $"{output}\n{error}".Contains(late, StringComparison.Ordinal))),
                    $"{exitCode}: {output}\n{error}");
                return exitCode == 0;
            },
            () => $"the records are rebuilt: {output}\n{error}");
        return output;
    }

    /// <summary>Runs that command once.</summary>
    public static Task<(int ExitCode, string Output, string Error)> RecoverAsync(string endpoint, params string[] arguments) =>
        Tools.RunAsync(Tools.Built("kv", "KvCluster.Cli"), ["admin", "coordinator", "recover", "--endpoint", endpoint, .. arguments]);

    /// <summary>Runs the program's command that creates a cluster.</summary>
    public static Task CreateAsync(IReadOnlyList<string> command) => Eventually.TrueAsync(async () =>
    {
        // On a busy machine etcd may take longer than the program waits. When repeated, the program continues where it was.
        var (exitCode, _, error) = await Tools.RunAsync(NodeProcess.Program, command);
        Assert.True(exitCode is 0 or NoCoordinator, error);
        return exitCode == 0;
    }, "the cluster is created");

    private static KvCluster.Etag EtagOf(V1.Etag? etag) => etag is null ? default : new KvCluster.Etag(etag.Epoch, etag.Change);

    private Relay Own(Relay relay)
    {
        _relays.Add(relay);
        return relay;
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
