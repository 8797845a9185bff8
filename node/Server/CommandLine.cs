using KvCluster.AdminConsole;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.ServiceDefaults.Telemetry;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>The commands of kv-node.</summary>
internal static class CommandLine
{
    /// <summary>How long a single snapshot waits for a coordinator that is just being started, or for its cluster to be created.</summary>
    private static readonly TimeSpan SnapshotPatience = TimeSpan.FromMinutes(2);

    /// <summary>How long the creation of a cluster waits for each answer of the coordinator.</summary>
    private static readonly TimeSpan InitRequestTime = TimeSpan.FromSeconds(10);

    private static readonly ProgramCommands Program = new("kv-node", "A node of a KvCluster.", NodeSettings.Known);

    /// <summary>Runs a command.</summary>
    /// <returns>The exit code.</returns>
    public static Task<int> InvokeAsync(string[] arguments)
    {
        Program.Add("run", "Runs a node until SIGTERM or Ctrl-C.", NodeSettings.RunTable, NodeSettings.CheckRun, RunAsync);
        Program.Add("init", "Creates a cluster: its shards and the placement of their replicas.", NodeSettings.InitTable, NodeSettings.CheckInit, InitAsync);
        Program.Add(
            "coordinator", "Serves the embedded coordinator to other processes.", NodeSettings.CoordinatorTable, NodeSettings.CheckCoordinator,
            CoordinateAsync);
        Program.Add(
            "coordinator-snapshot", "Saves the data of the coordinator, an etcd, into a file that `etcdutl snapshot restore` reads, and keeps the newest ones.",
            NodeSettings.SnapshotTable, NodeSettings.CheckSnapshot, SnapshotAsync);
        Program.AddConfigShow("run", NodeSettings.RunTable, NodeSettings.CheckRun);
        Program.AddHealth();
        Program.Add(CertsCommand.Create());
        Program.Add(StorageCommand.Create());
        Program.Add(AsideCommand.Create());
        return Program.InvokeAsync(arguments, ExitCodeOf);
    }

    private static int ExitCodeOf(Exception failure) => failure switch
    {
        SettingsException or UnusableFileException => ExitCodes.Usage,
        CoordinatorDeniedException => ExitCodes.Denied,
        DirectoryFormatException or FormatVersionException => ExitCodes.OtherFormat,
        CorruptStoreException => ExitCodes.Damaged,
        IOException or PlatformNotSupportedException => ExitCodes.Unavailable,
        StaleDirectoryException or ForeignDirectoryException or CoordinatorUnavailableException or CoordinatorAlarmException or ClusterConflictException =>
            ExitCodes.Unavailable,
        _ => ExitCodes.Internal,
    };

    private static async Task<int> RunAsync(Settings settings, CancellationToken stop)
    {
        if (NodeSettings.MemoryRefusal(settings, ProcessMemory.LimitBytes) is { } refusal)
            throw new SettingsException([refusal]);
        var options = NodeSettings.OptionsOf(settings);
        ProcessMemory.LimitHeap(NodeSettings.OutsideHeapMebibytes(options), NodeSettings.InHeapMebibytes(options));
        var token = new AdminToken(settings.Get(CommonSettings.AdminTokenFile));
        var exported = new ExportedService("kv-node", $"node-{options.Node}", options.Cluster);
        using var logs = ProcessLogs.Create(settings, exported);
        using var export = TelemetryExport.Start(exported, logs.CreateLogger<TelemetryExport>());
        using var stopping = InputEnd.Link(settings.Get(CommonSettings.UntilStdinEnds), stop);
        var health = new ProcessHealth();
        // Started first, so that it shows what the rest of the start waits for.
        await using var admin = settings.Get(CommonSettings.Admin) is { } url
            ? await AdminServer.StartAsync(new Uri(url), logs, health.Endpoints, stopping.Token).ConfigureAwait(false)
            : null;
        await using var coordinator = new EtcdCoordinator(NodeSettings.EtcdOptionsOf(settings), logs.CreateLogger<EtcdCoordinator>());
        var host = await NodeHost.StartAsync(options, coordinator, health, logs, stopping.Token).ConfigureAwait(false);
        using var metrics = MetricsEndpoint.Add(admin, meter => ReferenceEquals(meter, host.Meter), () => options.Cluster);
        await using var console = ClusterConsole.Add(admin, ConsoleOptions.Of(settings, token, $"node {options.Node}", [host.Address]), logs);
        if (await Task.WhenAny(WaitAsync(stopping.Token), host.DiskFailed).ConfigureAwait(false) == host.DiskFailed)
        {
            var failure = await host.DiskFailed.ConfigureAwait(false);
            return Program.Tell([$"{failure.Message}. The node stops without another write; start it again when the disk works."], ExitCodes.DiskFailed);
        }
        await host.StopAsync().ConfigureAwait(false);
        return ExitCodes.Done;
    }

    internal static async Task<int> InitAsync(Settings settings, CancellationToken stop)
    {
        using var logs = ProcessLogs.Create(settings);
        // An operator or a Job waits for it, on a machine that may be busy with starting everything else.
        var etcd = NodeSettings.EtcdOptionsOf(settings) with { RequestTime = InitRequestTime };
        await using var coordinator = new EtcdCoordinator(etcd, logs.CreateLogger<EtcdCoordinator>());
        var (name, cluster) = (settings.Get(NodeSettings.Cluster)!, NodeSettings.NewClusterOf(settings, NodeSettings.Nodes));
        try
        {
            if (!await ClusterInit.CreateAsync(coordinator, name, cluster, stop).ConfigureAwait(false))
                return Program.Tell([$"The cluster '{name}' already exists; nothing was changed."], ExitCodes.Unavailable);
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            // A Job whose pod ends with 0 has succeeded.
            return Program.Tell([$"Stopped before it was certain that the cluster '{name}' exists. The same command completes it."], ExitCodes.Unavailable);
        }
        Console.WriteLine(
            $"Created the cluster '{name}': {cluster.SplitKeys.Count + 1} shards of {cluster.ReplicationFactor} replicas on {cluster.Nodes.Count} nodes.");
        return ExitCodes.Done;
    }

    private static async Task<int> CoordinateAsync(Settings settings, CancellationToken stop)
    {
        using var logs = ProcessLogs.Create(settings);
        using var stopping = InputEnd.Link(settings.Get(CommonSettings.UntilStdinEnds), stop);
        await using var coordinator = EmbeddedCoordinator.Open(settings.Get(NodeSettings.Data)!, TimeProvider.System);
        await using var server = await CoordinatorServer.StartAsync(coordinator, settings.Get(NodeSettings.Listen)!, logs, stopping.Token)
            .ConfigureAwait(false);
        await WaitAsync(stopping.Token).ConfigureAwait(false);
        return ExitCodes.Done;
    }

    internal static async Task<int> SnapshotAsync(Settings settings, CancellationToken stop)
    {
        using var logs = ProcessLogs.Create(settings);
        using var stopping = InputEnd.Link(settings.Get(CommonSettings.UntilStdinEnds), stop);
        var etcd = NodeSettings.EtcdOptionsOf(settings);
        var snapshots = new CoordinatorSnapshots(
            () => new EtcdCoordinator(etcd, logs.CreateLogger<EtcdCoordinator>()),
            new CoordinatorKeys(settings.Get(NodeSettings.Cluster)!),
            LocalDisk.Instance,
            new SnapshotFolder(settings.Get(NodeSettings.SnapshotDirectory)!, settings.Get(NodeSettings.SnapshotsKept)),
            TimeProvider.System,
            logs.CreateLogger<CoordinatorSnapshots>());
        if (settings.Get(NodeSettings.SnapshotInterval) is var minutes and > 0)
        {
            await snapshots.RunAsync(TimeSpan.FromMinutes(minutes), stopping.Token).ConfigureAwait(false);
            return ExitCodes.Done;
        }
        try
        {
            var saved = await snapshots.SaveAsync(SnapshotPatience, stopping.Token).ConfigureAwait(false);
            var done = $"Saved the coordinator's data in '{saved.Path}': {saved.Bytes} bytes. Older snapshots deleted: {saved.Deleted}.";
            // The snapshot exists, so the command has succeeded. A Job that failed would be repeated, and each repetition would delete an older snapshot.
            if (saved.Untold is { } reason)
                return Program.Tell(
                    [$"{done} But its time could not be put into the coordinator, so nodes take an earlier snapshot for the newest: {reason}"], ExitCodes.Done);
            Console.WriteLine(done);
            return ExitCodes.Done;
        }
        catch (OperationCanceledException) when (stopping.IsCancellationRequested)
        {
            return Program.Tell(["Stopped before the snapshot was complete; no file was added. Run this again."], ExitCodes.Unavailable);
        }
    }

    private static async Task WaitAsync(CancellationToken stop) =>
        await Task.Delay(Timeout.Infinite, stop).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
}
