using KvCluster.AdminConsole;
using KvCluster.Client;
using KvCluster.Node;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Security;
using Microsoft.Extensions.Logging;

namespace KvCluster.Local;

/// <summary>Nodes and router in the launcher's own process. They use its coordinator directly, and there is one console.</summary>
internal sealed class ClusterInProcess : IRunningCluster
{
    private readonly List<NodeHost> _nodes = [];
    private RouterHost? _router;
    private AdminServer? _admin;
    private ClusterConsole? _console;

    public Task Failure { get; } = new TaskCompletionSource().Task;

    public static async Task<ClusterInProcess> StartAsync(
        LocalOptions options, DataFolder folder, ICoordinator coordinator, ILoggerFactory logs, CancellationToken stop)
    {
        var cluster = new ClusterInProcess();
        try
        {
            for (var node = 1; node <= folder.Nodes; node++)
            {
                var nodeOptions = new NodeOptions
                {
                    Node = new NodeId((uint)node),
                    DataDirectory = folder.Node(node),
                    Listen = options.NodeAddress(node),
                    ListenPeers = options.PeerAddress(node),
                    ServeAdmin = true,
                    Cluster = Launcher.ClusterName,
                    MemoryBudgetMebibytes = NodeOptions.MemoryBudgetOfEach(folder.Nodes),
                    Tls = TlsOf($"node-{node}"),
                };
                cluster._nodes.Add(await NodeHost.StartAsync(nodeOptions, coordinator, new ProcessHealth(), logs, stop));
            }

            string[] nodes = [.. Enumerable.Range(1, folder.Nodes).Select(options.NodeAddress)];
            var health = new ProcessHealth();
            cluster._admin = await AdminServer.StartAsync(new Uri(options.ConsoleAddress), logs, health.Endpoints, stop);
            cluster._router = await RouterHost.StartAsync(
                new RouterOptions { Listen = options.RouterAddress, Seeds = nodes, ServeAdmin = true, Tls = TlsOf("router") }, health, logs, stop);
            cluster._console = ClusterConsole.Add(cluster._admin, ConsoleOf(options, nodes), logs);
            return cluster;

            ServerTlsOptions? TlsOf(string who) => options.TlsFilesOf(who) is { } files ? new ServerTlsOptions { Files = files } : null;
        }
        catch
        {
            await cluster.DisposeAsync();
            throw;
        }
    }

    public async ValueTask DisposeAsync()
    {
        if (_console is not null)
            await _console.DisposeAsync();
        if (_admin is not null)
            await _admin.DisposeAsync();
        if (_router is not null)
            await _router.DisposeAsync();
        await Task.WhenAll(_nodes.Select(node => node.DisposeAsync().AsTask()));
    }

    private static ConsoleOptions ConsoleOf(LocalOptions options, IReadOnlyList<string> nodes) => new()
    {
        Program = "local cluster",
        Endpoints = nodes,
        Tls = options.TlsFilesOf("router") is { } files
            ? new KvTlsOptions { AuthorityFile = files.AuthorityFile, CertificateFile = files.CertificateFile, KeyFile = files.KeyFile }
            : null,
        Token = new AdminToken(options.TokenFile),
    };
}
