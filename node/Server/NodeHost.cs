// A node: everything between its options and its serving. Started and stopped by kv-node and by the local cluster, each from one thread. A
// failure to start is an exception whose type names the mistake; nothing is left running then.
using System.Diagnostics.Metrics;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Api;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Operators;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Api.Watches;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;
using KvCluster.Node.Map;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Node.Transport;
using KvCluster.Node.Watching;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Calls;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Tls;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>A running node.</summary>
internal sealed class NodeHost : IAsyncDisposable
{
    /// <summary>Maximum number of connections from other nodes. Each node of a large cluster has one.</summary>
    private const int PeerConnectionsMax = 1_024;

    /// <summary>How often the readiness that gRPC tells is compared with the process's. That the node drains or stops is told at once.</summary>
    private static readonly TimeSpan GrpcHealthInterval = TimeSpan.FromSeconds(1);

    private readonly ILogger _log;
    private readonly NodeOptions _options;
    private readonly ProcessHealth _health;
    private readonly GrpcHealth _grpcHealth = new();
    private readonly Stack<(string Name, IAsyncDisposable Part)> _parts = [];
    private LeaderPlacement? _placement;
    private ShardHost? _shards;
    private bool _isStopped;

    private NodeHost(NodeOptions options, ProcessHealth health, ILogger log)
    {
        _options = options;
        _health = health;
        _log = log;
    }

    /// <summary>The address for clients: "http://host:port".</summary>
    public string Address { get; private set; } = "";

    /// <summary>The address for the streams of other nodes.</summary>
    public string PeerAddress { get; private set; } = "";

    /// <summary>
    /// Starts a node. Completes when it serves; its replicas are opened, and elect their leaders, in the background. Waits for the cluster's record
    /// until there is one.
    /// </summary>
    /// <param name="options">The node's options.</param>
    /// <param name="coordinator">Owned by the caller, who disposes it after the node.</param>
    /// <param name="health">Receives the progress of the start.</param>
    /// <param name="logs">Owned by the caller.</param>
    /// <param name="cancellationToken">Cancels the start.</param>
    /// <exception cref="DirectoryInUseException">Another process uses the data directory.</exception>
    /// <exception cref="DirectoryNotUsableException">The data directory cannot be created or written.</exception>
    /// <exception cref="DirectoryFormatException">The data directory is of another format version.</exception>
    /// <exception cref="CoordinatorDeniedException">The coordinator rejects the user or password.</exception>
    /// <exception cref="ForeignDirectoryException">The data directory belongs to another node, another cluster, or another lineage of it.</exception>
    /// <exception cref="NodeRunsAlreadyException">Another process already runs as this node, with another data directory.</exception>
    /// <exception cref="StaleDirectoryException">The data directory is not the node's newest, and the node must not continue without that one.</exception>
    /// <exception cref="UnusableFileException">A file of <see cref="NodeOptions.Tls"/> is not usable.</exception>
    /// <exception cref="IOException">It cannot listen: a port is in use, or an address is not this machine's or not allowed.</exception>
    public static async Task<NodeHost> StartAsync(
        NodeOptions options, ICoordinator coordinator, ProcessHealth health, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var host = new NodeHost(options, health, logs.CreateLogger<NodeHost>());
        try
        {
            await host.StartPartsAsync(coordinator, logs, cancellationToken).ConfigureAwait(false);
            return host;
        }
        catch
        {
            await host.DisposeAsync().ConfigureAwait(false);
            throw;
        }
    }

    /// <summary>The node's replicas, for tests; null until it has started.</summary>
    internal ShardHost? Shards => _shards;

    /// <summary>The meter of this node's metrics; null until it has started.</summary>
    public Meter? Meter { get; private set; }

    /// <summary>
    /// Completes when a disk has refused or lost what a replica wrote or synced. From then on this process cannot rely on what it knows of that disk. The
    /// program must exit at once, without <see cref="StopAsync"/>; a restart recovers from what is really on the disk.
    /// </summary>
    public Task<StorageIoException> DiskFailed { get; private set; } = new TaskCompletionSource<StorageIoException>().Task;

    /// <summary>
    /// Transfers its leaderships, writes the checkpoints that shorten the next start, ends calls, and closes the replicas. Within
    /// <see cref="NodeOptions.StopTimeMax"/>.
    /// </summary>
    public Task StopAsync() => CloseAsync(drains: true);

    /// <summary>Like <see cref="StopAsync"/>, but without transfers, for callers that stop all nodes, when nobody can take over.</summary>
    public async ValueTask DisposeAsync() => await CloseAsync(drains: false).ConfigureAwait(false);

    private async Task CloseAsync(bool drains)
    {
        if (_isStopped)
            return;
        _isStopped = true;
        _health.Stops();
        _grpcHealth.Look();
        var stopping = PrepareAndStopAsync(drains);
        if (await Task.WhenAny(stopping, Task.Delay(_options.StopTimeMax)).ConfigureAwait(false) == stopping)
        {
            await stopping.ConfigureAwait(false);
            if (_placement is not null)
                NodeLog.Stopped(_log, _options.Node);
        }
        else
        {
            NodeLog.StopTookTooLong(_log, _options.Node, _parts.TryPeek(out var part) ? part.Name : "the last part");
        }
    }

    // Callers then see the pause of a transfer and not that of an election, and the next start has little to replay.
    private async Task PrepareAndStopAsync(bool drains)
    {
        using var limit = new CancellationTokenSource(_options.DrainTimeMax);
        if (_placement is not null && drains)
        {
            await ((Task)_placement.DrainAsync(_options.DrainTimeMax, PatienceOf(_options.DrainTimeMax), limit.Token)).WaitAsync(limit.Token)
                .ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
        if (_shards is not null)
            await _shards.CoverAsync(limit.Token).ConfigureAwait(false);
        await StopPartsAsync().ConfigureAwait(false);
    }

    // If there is time, waits for followers that are just catching up; not in the last seconds.
    private static TimeSpan PatienceOf(TimeSpan drainTimeMax) =>
        TimeSpan.FromSeconds(Math.Clamp((drainTimeMax.TotalSeconds - 1) / 2, 0, 5));

    private async Task StopPartsAsync()
    {
        var failures = new List<Exception>();
        while (_parts.TryPeek(out var next))
        {
            try
            {
                await next.Part.DisposeAsync().ConfigureAwait(false);
            }
            catch (Exception failure)
            {
                // The remaining parts must still be closed; the data directory is the last of them.
                failures.Add(failure);
            }
            _parts.Pop();
        }
        if (failures.Count > 0)
            throw new AggregateException(failures);
    }

    private T Own<T>(string name, T part)
        where T : IAsyncDisposable
    {
        _parts.Push((name, part));
        return part;
    }

    private async Task StartPartsAsync(ICoordinator coordinator, ILoggerFactory logs, CancellationToken cancellationToken)
    {
        var keys = new CoordinatorKeys(_options.Cluster);
        var name = NodeNames.OfNode(_options.Node.Value, _options.Cluster);
        var tls = _options.Tls is null ? null : Own("the certificates", new ServerTls(_options.Tls, name, _log, TimeProvider.System));
        var directory = NodeDirectory.Open(_options.DataDirectory, LocalDisk.Instance);
        Own("the data directory", directory);
        if (directory.Replay is { Writes: > 0 } replay)
            NodeLog.SharedJournalReplayed(_log, replay.Writes);
        foreach (var lost in directory.Replay?.Losses ?? [])
            NodeLog.SharedJournalDamaged(_log, lost);
        var listenPeers = new UriBuilder(_options.ListenPeers ?? DefaultForPeers(_options.Listen)).Uri;
        Func<NodeId, string, GrpcChannel> channelTo = (node, address) => PeerTransport.ChannelTo(node, address, _options.Cluster, tls?.Files);
        var entry = new ClusterEntry(_options, coordinator, keys, _health, _log);
        var unguarded = coordinator;
        var (cluster, clusterText) = await WaitForClusterAsync(
            entry, directory, listenPeers, tls, hosted => RecoveryOf(unguarded, keys, directory, hosted, channelTo, static () => []), channelTo, logs,
            cancellationToken).ConfigureAwait(false);
        _health.Waits("it is opening its data");
        directory.Claim(_options.Node, cluster.ClusterId, Lineage.Read(cluster.Lineage));
        var pays = directory.MeasureWhatPays();
        NodeLog.JournalOptions(
            _log, pays.Filling ? "filled with zeros before they are used" : "only allocated", pays.Compression ? "compressed" : "not compressed",
            pays.JournalWrites);
        await entry.RefuseToRunTwiceAsync(channelTo, cancellationToken).ConfigureAwait(false);
        // Before the start is counted. A node whose port is taken is started again and again, and no start of it ever runs.
        var (listen, port) = Reserve("the port", new Uri(_options.Listen));
        (listenPeers, var peerPort) = Reserve("the port for nodes", listenPeers);
        var incarnation = await entry.CountStartAsync(directory, channelTo, cancellationToken).ConfigureAwait(false);
        // Not before the data of an old copy is set aside: a node that has joined a recovery counts in the next one.
        directory.Known.Keep(cluster);
        var address = _options.Advertise ?? listen.GetLeftPart(UriPartial.Authority);
        var peerAddress = _options.AdvertisePeers ?? PeerAddressOf(_options.Advertise, listenPeers);
        var identity = new NodeIdentity(_options.Cluster, cluster.ClusterId, _options.Node, incarnation, address, peerAddress)
        {
            Lineage = Lineage.Read(cluster.Lineage),
            AdminAddress = _options.ServeAdmin ? address : peerAddress,
            Levels = _options.Levels,
            FormatLevel = cluster.FormatLevel,
            ContractLevel = cluster.ContractLevel,
        };
        (Address, PeerAddress) = (address, peerAddress);

        Own("the return of memory", new MemoryReturn());
        var metrics = Own("the metrics", new NodeMetrics(identity, _options.ShardSeriesMax));
        var measured = new MeasuredCoordinator(coordinator, metrics);
        var following = Own("the following of the coordinator", new CoordinatorFollowing(measured, keys, identity, directory.Known, clusterText, _log));
        following.Followed = measured.Followed;
        metrics.CoordinatorFollowed = () => following.Refusal is null;
        coordinator = new GuardedCoordinator(measured, () => following.Guard) { Renew = following.RenewAsync, Alarmed = measured.Alarm };
        var map = Own("the shard map", new ShardDirectory(coordinator, keys, () => directory.Known.Recovery, _log));
        metrics.CoordinatorSavedAt = () => map.CoordinatorSavedAt;
        Own("the copy of the nodes' records", new KnownNodes(map, directory.Known, _log));
        var peers = Own("the streams to other nodes", new PeerTransport(identity, tls?.Files, logs.CreateLogger<PeerTransport>()));
        var replication = _options.Replication with { LeaseUs = cluster.LeaseMs * 1_000 };
        var memory = new MemoryAccount((long)_options.MemoryBudgetMebibytes << 20, BootClock.Instance);
        metrics.Stores = memory;
        var shards = Own(
            "the replicas",
            new ShardHost(identity, directory, map, coordinator, peers, replication, StorageOf(cluster, pays, directory), memory, metrics, logs));
        _shards = shards;
        DiskFailed = shards.DiskFailed;
        _ = DiskFailed.ContinueWith(
            failed => _health.Breaks(failed.Result.Message), CancellationToken.None, TaskContinuationOptions.OnlyOnRanToCompletion, TaskScheduler.Default);
        Meter = metrics.Meter;
        Own("the refresh of metrics", new MetricsRefresh(metrics, map, shards, peers, directory, _log));
        var placement = Own("the placement of leaders", new LeaderPlacement(identity, map, shards, peers, BootClock.Instance, _log));
        var permissions = new StopPermissions(identity, map, shards, peers, BootClock.Instance);
        var replacement = Own("the replacement of replicas", new ReplacementExecution(
            identity, (int)cluster.ReplicationFactor, _options.LearnerPatience, map, shards, permissions, peers, BootClock.Instance, _log));
        var replicas = Own("the placement of replicas", new ReplicaBalancing(
            coordinator, keys, identity, (int)cluster.ReplicationFactor, _options.LearnerPatience, map, peers, shards.Threads.Timers, _log));
        Own("the space of retired replicas", new RetiredSpace(
            directory.RetiredPath, () => new DriveInfo(_options.DataDirectory) is var drive ? (drive.AvailableFreeSpace, drive.TotalSize) : default,
            shards.Threads.Timers, _log)
        {
            IsRoomLacking = () => shards.All.Any(static shard => shard.LacksRoom is not null),
        });
        var witness = new CopyWitness(identity, shards, coordinator);
        var copies = Own(
            "the space of copies that were set aside", new CopyRelease(identity, directory, map, shards, peers, witness, coordinator, metrics, _log));
        var examiner = new NodeDiagnostics(identity, _options.DataDirectory, LocalDisk.Instance, coordinator, tls?.Files, TimeProvider.System)
        {
            Stalls = shards.Threads.Stalls, Memory = memory, Copies = copies, CoordinatorRefusal = () => following.Refusal
        };
        var found = new OperatorShards(identity, shards);
        var operations = Own("the operations", new OperationRegistry(identity, replacement, map, shards, _log));
        var replaceCalls = new ReplaceCalls(identity, found, placement, replacement, operations);
        var levels = new ClusterLevels(coordinator, keys, _log);
        var admin = new AdminService(identity, shards, placement, found, replaceCalls, replicas, permissions, examiner, levels);
        var recovery = RecoveryOf(
            measured, keys, directory, shards, channelTo, () => peers.ReadLinks().Where(static link => link.IsUp).Select(static link => link.Node));
        var coordinatorCalls = new CoordinatorService(recovery.Recovery);
        var reads = Own("the threads of reads", ReadThreads.Start());
        var watches = Own("the watches", new WatchHubs(shards.Threads.Options, BootClock.Instance, logs.CreateLogger<WatchHubs>()));
        metrics.Watchers = () => watches.Watchers;
        metrics.WatchLag = () => watches.LagMax;
        Own("the server", await ServeAsync(
            identity, map, shards, reads, placement, admin, coordinatorCalls, _grpcHealth, metrics, watches, logs, listen, tls, port,
            cancellationToken).ConfigureAwait(false));
        Own("the server for nodes", await ServePeersAsync(
            identity, peers, permissions, replaceCalls, witness, admin, coordinatorCalls, recovery.Reporter, logs, listenPeers, tls, peerPort,
            cancellationToken).ConfigureAwait(false));
        peers.Start(map, shards.Receive, shards.NodeSilent, shards.Threads.Timers);
        shards.Start();
        var registration = Own("the registration", new NodeRegistration(coordinator, keys, identity, _log));
        following.Joined = registration.Renew;
        placement.DrainingChanged = draining =>
        {
            registration.SetDraining(draining);
            _health.Drains(draining);
            _grpcHealth.Look();
        };
        // A call may have requested a drain before this handler was set.
        if (placement.Draining)
            placement.DrainingChanged(true);
        _placement = placement;
        _health.Started(new ShardReadiness(map, shards).NotReady);
        _grpcHealth.Follow(() => _health.NotReady);
        Own("the health for gRPC", new BackgroundLoop("the health for gRPC", _ =>
        {
            _grpcHealth.Look();
            return Task.CompletedTask;
        }, static () => CommonMoments.Until(GrpcHealthInterval), shards.Threads.Timers, _log));
        NodeLog.Serves(_log, identity.Node, identity.Cluster, address, directory.Starts.Put.Starts);
    }

    // While the coordinator lacks the cluster, or has an older state of it, this node tells others what it knows, and an operator may have the records rebuilt
    // through it.
    private async Task<(ClusterRecord Record, string Text)> WaitForClusterAsync(
        ClusterEntry entry, NodeDirectory directory, Uri listenPeers, ServerTls? tls,
        Func<ShardHost?, (NodeReporter Reporter, RecoveryExecution Recovery)> recoveryOf, Func<NodeId, string, GrpcChannel> channelTo,
        ILoggerFactory logs, CancellationToken cancellationToken)
    {
        OwnedServer? waiting = null;
        try
        {
            // A node with port 0 waits without serving, because no other node could find its port.
            return await entry.WaitForClusterAsync(
                mayCreate: !directory.IsClaimed,
                directory.Known.Cluster,
                () => JoinedElsewhere.FindAsync(_options.Node, directory.Known, channelTo, cancellationToken),
                async () => waiting ??= listenPeers.Port == 0 ? null
                    : await ServeWaitingAsync(recoveryOf(null), logs, listenPeers, tls, cancellationToken).ConfigureAwait(false),
                cancellationToken).ConfigureAwait(false);
        }
        finally
        {
            if (waiting is not null)
                await waiting.DisposeAsync().ConfigureAwait(false);
        }
    }

    private (NodeReporter Reporter, RecoveryExecution Recovery) RecoveryOf(
        ICoordinator coordinator, CoordinatorKeys keys, NodeDirectory directory, ShardHost? shards, Func<NodeId, string, GrpcChannel> channelTo,
        Func<IEnumerable<NodeId>> hears)
    {
        var reporter = new NodeReporter(_options.Node, directory, shards, coordinator, keys, hears);
        return (
            reporter, new RecoveryExecution(_options.Node, coordinator, keys, reporter.ReportAsync, reporter.Release, channelTo, BootClock.Instance, _log));
    }

    private async Task<OwnedServer> ServeWaitingAsync(
        (NodeReporter Reporter, RecoveryExecution Recovery) recovery, ILoggerFactory logs, Uri listen, ServerTls? tls, CancellationToken cancellationToken)
    {
        var builder = ServerBuilder.Create(logs, listen, tls, limits: ListenerLimits.OfPeers(PeerConnectionsMax));
        builder.Services.AddSingleton(new RecoveryService(recovery.Reporter, _options.Cluster, tls?.Files))
            .AddSingleton(new CoordinatorService(recovery.Recovery));
        builder.Services.AddUnreadableRequests();
        builder.Services.AddCallsUnservedYet(_options.Node, _options.Cluster);
        builder.Services.AddGrpc(static grpc => grpc.MaxReceiveMessageSize = PeerTransport.MessageBytesMax);
        var app = builder.Build();
        app.MapGrpcService<RecoveryService>();
        app.MapGrpcService<CoordinatorService>();
        return await OwnedServer.StartAsync(app, listen, health: null, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>The default address to listen on for other nodes, derived from the one for clients.</summary>
    internal static string DefaultForPeers(string listen)
    {
        var peers = new UriBuilder(listen);
        peers.Port = peers.Port == 0 ? 0 : peers.Port + NodeOptions.PeerPortOffset;
        return peers.Uri.GetLeftPart(UriPartial.Authority);
    }

    private StoreOptions StorageOf(ClusterRecord cluster, JournalUse pays, NodeDirectory directory) => _options.Storage with
    {
        FillSegments = pays.Filling,
        CompressRecords = pays.Compression,
        JournalWrites = pays.JournalWrites,
        SharesJournal = cluster.FormatLevel >= ProgramLevels.FormatOfSharedJournals && directory.MayShare,
        HasShardTimes = cluster.FormatLevel >= ProgramLevels.FormatOfShardTimes,
        Pages = _options.Storage.Pages with
        {
            DividesValues = cluster.FormatLevel >= ProgramLevels.FormatOfDividedValues,
            CompressesValues = _options.Storage.Pages.CompressesValues && cluster.FormatLevel >= ProgramLevels.FormatOfCompressedValues,
        },
    };

    private static string PeerAddressOf(string? advertise, Uri listenPeers) =>
        new UriBuilder(advertise ?? listenPeers.OriginalString) { Scheme = listenPeers.Scheme, Port = listenPeers.Port }.Uri.GetLeftPart(UriPartial.Authority);

    private (Uri Listen, ReservedPort Port) Reserve(string name, Uri listen)
    {
        var port = Own(name, new ReservedPort(listen));
        return (new UriBuilder(listen) { Port = port.Port }.Uri, port);
    }

    // For nodes and operators: requests of up to 32 MiB, streams that never end, and with TLS certificates required from everybody.
    private static async Task<OwnedServer> ServePeersAsync(
        NodeIdentity identity, PeerTransport peers, StopPermissions permissions, ReplaceCalls replacements, CopyWitness witness,
        AdminService admin, CoordinatorService coordinatorCalls, NodeReporter reporter,
        ILoggerFactory logs, Uri listen, ServerTls? tls, ReservedPort port, CancellationToken cancellationToken)
    {
        var builder = ServerBuilder.Create(logs, listen, tls, limits: ListenerLimits.OfPeers(PeerConnectionsMax));
        port.GiveTo(builder);
        builder.Services.AddSingleton(peers)
            .AddSingleton<PeerService>().AddSingleton(new PlacementService(peers, permissions, replacements, witness)).AddSingleton(admin);
        builder.Services.AddSingleton(new RecoveryService(reporter, identity.Cluster, tls?.Files)).AddSingleton(coordinatorCalls);
        builder.Services.AddUnreadableRequests();
        builder.Services.AddUnservedCalls(identity.Node);
        builder.Services.AddForeignCalls(new ForeignCalls(() => identity.ClusterId));
        builder.Services.AddGrpc(static grpc => grpc.MaxReceiveMessageSize = PeerTransport.MessageBytesMax);
        var app = builder.Build();
        app.MapGrpcService<PeerService>();
        app.MapGrpcService<PlacementService>();
        app.MapGrpcService<AdminService>();
        app.MapGrpcService<RecoveryService>();
        app.MapGrpcService<CoordinatorService>();
        return await OwnedServer.StartAsync(app, listen, health: null, cancellationToken).ConfigureAwait(false);
    }

    private async Task<OwnedServer> ServeAsync(
        NodeIdentity identity,
        ShardDirectory map,
        ShardHost shards,
        ReadThreads reads,
        LeaderPlacement placement,
        AdminService admin,
        CoordinatorService coordinatorCalls,
        GrpcHealth health,
        NodeMetrics metrics,
        WatchHubs watches,
        ILoggerFactory logs,
        Uri listen,
        ServerTls? tls,
        ReservedPort port,
        CancellationToken cancellationToken)
    {
        var builder = ServerBuilder.Create(logs, listen, tls, limits: ListenerLimits.OfClients(_options.ConnectionsMax));
        port.GiveTo(builder);
        var services = builder.Services;
        services.AddSingleton(identity).AddSingleton(map).AddSingleton(shards).AddSingleton(placement).AddSingleton(admin).AddSingleton(coordinatorCalls);
        services.AddSingleton(health).AddSingleton(metrics);
        var memory = new CallMemory(_options.CallMemoryMebibytes);
        memory.AddTo(services);
        metrics.Calls = memory;
        services.AddUnreadableRequests();
        services.AddUnservedCalls(identity.Node);
        services.AddRequestLimits();
        services.AddSingleton<TimeProvider>(BootClock.Instance).AddSingleton(shards.Threads.Options);
        var lookup = new ShardLookup(identity.Node, shards, metrics.Activity.Hot);
        services.AddSingleton(lookup).AddSingleton(new ReadOpener(lookup, BootClock.Instance, _options.ReadWaitMax)).AddSingleton(reads);
        services.AddSingleton(_ => new KeptSnapshots(BootClock.Instance, shards.Threads.Options.SnapshotAgeMax))
            .AddSingleton<KvCalls>().AddSingleton<KvScans>();
        services.AddSingleton(QueryMemory.For(_options.CallMemoryMebibytes));
        services.AddSingleton(watches).AddSingleton<KvWatches>();
        services.AddReflection(_options.ServeAdmin);
        services.AddSingleton<KvService>().AddSingleton<ClusterService>();
        services.AddForeignCalls(new ForeignCalls(() => identity.ClusterId));
        services.AddGrpc(static grpc => grpc.MaxReceiveMessageSize = ListenerLimits.MessageBytesMax);
        var app = builder.Build();
        app.MapGrpcService<KvService>();
        app.MapGrpcService<ClusterService>();
        if (_options.ServeAdmin)
        {
            app.MapGrpcService<AdminService>();
            app.MapGrpcService<CoordinatorService>();
        }
        app.MapHealthAndReflection();
        app.Lifetime.ApplicationStopping.Register(watches.Stop);
        return await OwnedServer.StartAsync(app, listen, health, cancellationToken).ConfigureAwait(false);
    }
}
