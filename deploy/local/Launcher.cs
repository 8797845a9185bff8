using System.Text;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Local;

/// <summary>Runs a cluster: opens the data directory, starts the cluster, prints where it is, and stops it at the end.</summary>
internal static class Launcher
{
    /// <summary>The cluster's name in the coordinator.</summary>
    public const string ClusterName = "local";

    private const int ReplicasMax = 3;

    /// <summary>Runs the cluster until <paramref name="stop"/> is cancelled.</summary>
    /// <returns>The exit code. Every expected failure has been reported in one line.</returns>
    public static async Task<int> RunAsync(LocalOptions options, CancellationToken stop)
    {
        try
        {
            using var folder = DataFolder.Open(options);
            PortCheck.CheckFree(options, folder.Nodes);
            folder.Keep();
            AdminTokenFile.Keep(options.TokenFile);
            MakeCertificates(options, folder);
            using var logs = LoggerFactory.Create(log =>
            {
                ProcessLogs.MuteCallers(log);
                log.AddProvider(new LogFile(Path.Combine(folder.Run, "cluster.log")));
            });
            await using var coordinator = EmbeddedCoordinator.Open(folder.Coordinator, TimeProvider.System);
            await CreateShardsAsync(folder, coordinator, stop);
            await using var cluster = await StartAsync(options, folder, coordinator, logs, stop);
            await ServeAsync(options, folder, cluster, stop);
            return ExitCodes.Stopped;
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            return ExitCodes.Stopped;
        }
        catch (LauncherException e)
        {
            return Tell(e.Message, e.ExitCode);
        }
        catch (UnusableFileException e)
        {
            return Tell(e.Message, ExitCodes.Usage);
        }
        catch (DirectoryFormatException e)
        {
            return Tell(e.Message, ExitCodes.OtherFormat);
        }
        catch (Exception e) when (e is IOException or StaleDirectoryException or ForeignDirectoryException)
        {
            return Tell(e.Message, ExitCodes.Unavailable);
        }
    }

    private static int Tell(string line, int exitCode)
    {
        Console.Error.WriteLine($"kv-local: {line}");
        return exitCode;
    }

    // Only once, because clients keep the authority that they have. The key of a client is written last. A directory of an earlier version has other names.
    private static void MakeCertificates(LocalOptions options, DataFolder folder)
    {
        if (options.Tls && !File.Exists(options.TlsFilesOf("client")!.KeyFile))
            DevelopmentCertificates.Create(
                options.Certificates, ClusterName, Enumerable.Range(1, folder.Nodes).Select(node => new NodeId((uint)node)), [], DateTimeOffset.UtcNow);
    }

    private static Task CreateShardsAsync(DataFolder folder, EmbeddedCoordinator coordinator, CancellationToken stop) => ClusterInit.CreateAsync(
        coordinator, ClusterName,
        new NewCluster(
            [.. Enumerable.Range(1, folder.Nodes).Select(node => new NodeId((uint)node))], Math.Min(ReplicasMax, folder.Nodes),
            [.. folder.SplitKeys.Select(key => (ReadOnlyMemory<byte>)Encoding.UTF8.GetBytes(key))]),
        stop);

    private static async Task<IRunningCluster> StartAsync(
        LocalOptions options, DataFolder folder, EmbeddedCoordinator coordinator, ILoggerFactory logs, CancellationToken stop) => options.Processes
            ? await ClusterOfProcesses.StartAsync(options, folder, coordinator, logs, stop)
            : await ClusterInProcess.StartAsync(options, folder, coordinator, logs, stop);

    private static async Task ServeAsync(LocalOptions options, DataFolder folder, IRunningCluster cluster, CancellationToken stop)
    {
        var serving = BecomeServingAsync(options, folder, stop);
        await await Task.WhenAny(serving, cluster.Failure);
        Screen.Print(Console.Out, options, folder, await serving);
        await await Task.WhenAny(cluster.Failure, Task.Delay(Timeout.Infinite, stop));
    }

    private static async Task<int> BecomeServingAsync(LocalOptions options, DataFolder folder, CancellationToken stop)
    {
        using var access = new ClusterAccess(options);
        await access.WaitUntilServingAsync(folder.SplitKeys.Count + 1, stop);
        return options.Sample ? await access.LoadSampleAsync(stop) : 0;
    }
}
