using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Local;

/// <summary>What the command line asks for, checked.</summary>
/// <param name="Folder">The data folder, absolute.</param>
/// <param name="Nodes">How many nodes; null: as the folder has, or 3.</param>
/// <param name="SplitKeys">Where shards begin beside the first, in order; null: as the folder has, or one shard.</param>
/// <param name="Port">The router's port; node N listens on the N-th after it, the coordinator on the ninth, and node N for other nodes on the N-th after the tenth.</param>
/// <param name="ConsolePort">The console's port. With processes it is the router's, and node N has a console on the N-th after it.</param>
/// <param name="Processes">Nodes and router as processes of their own.</param>
/// <param name="Tls">Nodes and router speak TLS, with certificates that the folder keeps.</param>
/// <param name="Sample">Load the shipped sample once the cluster serves.</param>
internal sealed record LocalOptions(string Folder, int? Nodes, IReadOnlyList<string>? SplitKeys, int Port, int ConsolePort, bool Processes, bool Tls, bool Sample)
{
    /// <summary>Nodes of a new cluster, and replicas of each shard where there are as many nodes.</summary>
    public const int NodesDefault = 3;

    /// <summary>The ports from the router's to the coordinator's leave room for so many.</summary>
    public const int NodesMax = 8;

    public const int ShardsMax = 64;
    public const int PortDefault = 7400;
    public const int CoordinatorPortOffset = 9;

    /// <summary>From the router's port to the console's, if no other is chosen.</summary>
    public const int ConsolePortOffset = 80;

    /// <summary>From the router's port to the one before those where nodes listen for each other.</summary>
    public const int PeerPortOffset = 10;

    public string RouterAddress => AddressOf(0);

    /// <summary>In plain text always: it stands for an etcd of its own.</summary>
    public string CoordinatorAddress => $"http://127.0.0.1:{Port + CoordinatorPortOffset}";

    public string NodeAddress(int node) => AddressOf(node);

    /// <summary>With processes only.</summary>
    public string NodeConsoleAddress(int node) => $"http://127.0.0.1:{ConsolePort + node}";

    public string PeerAddress(int node) => AddressOf(PeerPortOffset + node);

    /// <summary>The router's console, without TLS: on loopback. It shows the whole cluster, as the consoles of the nodes do.</summary>
    public string ConsoleAddress => NodeConsoleAddress(0);

    /// <summary>Where a file with the token lies that changes through the console require.</summary>
    public string TokenFile => Path.Combine(Folder, "admin-token");

    /// <summary>Where the certificates lie.</summary>
    public string Certificates => Path.Combine(Folder, "certs");

    /// <summary>What a node, "node-1", the router or a client trusts and shows; null: they speak in plain text.</summary>
    public TlsFiles? TlsFilesOf(string who) => Tls ? DevelopmentCertificates.FilesOf(Certificates, who) : null;

    private string AddressOf(int offset) => $"{(Tls ? "https" : "http")}://127.0.0.1:{Port + offset}";
}
