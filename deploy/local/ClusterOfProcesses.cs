using System.Globalization;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Local;

/// <summary>Nodes and router as child processes, which reach the launcher's coordinator over loopback.</summary>
internal sealed class ClusterOfProcesses : IRunningCluster
{
    private readonly CancellationTokenSource _stop = new();
    private readonly CoordinatorServer _coordinator;
    private readonly Task[] _children;

    private ClusterOfProcesses(CoordinatorServer coordinator, IEnumerable<Child> children)
    {
        _coordinator = coordinator;
        _children = [.. children.Select(child => child.RunAsync(_stop.Token))];
        Failure = Task.WhenAny(_children).Unwrap();
    }

    public Task Failure { get; }

    public static async Task<ClusterOfProcesses> StartAsync(
        LocalOptions options, DataFolder folder, EmbeddedCoordinator coordinator, ILoggerFactory logs, CancellationToken stop)
    {
        var served = await CoordinatorServer.StartAsync(coordinator, options.CoordinatorAddress, logs, stop);
        var nodes = Enumerable.Range(1, folder.Nodes).Select(node => new Child($"node-{node}", Program("kv-node"),
        [
            "run", "--node", node.ToString(CultureInfo.InvariantCulture), "--data", folder.Node(node),
            "--listen", options.NodeAddress(node), "--listen-peers", options.PeerAddress(node),
            "--coordinator", $"etcd={options.CoordinatorAddress}", "--serve-admin", "--until-stdin-ends",
            "--memory-budget-mib", NodeOptions.MemoryBudgetOfEach(folder.Nodes).ToString(CultureInfo.InvariantCulture),
            .. ConsoleFlags(options, options.NodeConsoleAddress(node)), .. TlsFlags(options.TlsFilesOf($"node-{node}")),
        ], folder.Run));
        var router = new Child("router", Program("kv-router"),
        [
            "run", "--listen", options.RouterAddress, "--nodes", string.Join(',', Enumerable.Range(1, folder.Nodes).Select(options.NodeAddress)),
            "--serve-admin", "--until-stdin-ends",
            .. ConsoleFlags(options, options.ConsoleAddress), .. TlsFlags(options.TlsFilesOf("router")),
        ], folder.Run);
        return new ClusterOfProcesses(served, nodes.Append(router));
    }

    public async ValueTask DisposeAsync()
    {
        await _stop.CancelAsync();
        await Task.WhenAll(_children).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        await _coordinator.DisposeAsync();
        _stop.Dispose();
    }

    private static string[] ConsoleFlags(LocalOptions options, string address) => ["--admin", address, "--admin-token-file", options.TokenFile];

    private static string[] TlsFlags(TlsFiles? files) =>
        files is null ? [] : ["--tls-ca", files.AuthorityFile!, "--tls-cert", files.CertificateFile!, "--tls-key", files.KeyFile!];

    // The build puts the programs beside the launcher, because it references them.
    private static string Program(string name) => Path.Combine(AppContext.BaseDirectory, OperatingSystem.IsWindows() ? name + ".exe" : name);
}
