using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Local;

/// <summary>The options of the command line, checked.</summary>
/// <param name="Folder">The data directory, an absolute path.</param>
/// <param name="Nodes">Number of nodes; null means the number in the directory, or 3.</param>
/// <param name="SplitKeys">Keys at which the shards after the first begin, in order; null means those in the directory, or one shard.</param>
/// <param name="Port">The router's port. Above it, node N listens at N, the coordinator at 9, and node N for other nodes at 10 + N.</param>
/// <param name="ConsolePort">The console's port. With processes it is the router's, and node N has a console N ports above it.</param>
/// <param name="Processes">Whether nodes and router are processes of their own.</param>
/// <param name="Tls">Whether nodes and router use TLS, with certificates in the directory.</param>
/// <param name="Sample">Whether to load the sample data once the cluster serves.</param>
internal sealed record LocalOptions(
    string Folder, int? Nodes, IReadOnlyList<string>? SplitKeys, int Port, int ConsolePort, bool Processes, bool Tls, bool Sample)
{
    /// <summary>Nodes of a new cluster.</summary>
    public const int NodesDefault = 3;

    /// <summary>Limited by the ports between the router's and the coordinator's.</summary>
    public const int NodesMax = 8;

    public const int ShardsMax = 64;
    public const int PortDefault = 7400;
    public const int CoordinatorPortOffset = 9;

    /// <summary>From the router's port to the default port of the console.</summary>
    public const int ConsolePortOffset = 80;

    /// <summary>From the router's port to the one before those where nodes listen for each other.</summary>
    public const int PeerPortOffset = 10;

    public string RouterAddress => AddressOf(0);

    /// <summary>Always plain text, because it takes the place of an etcd.</summary>
    public string CoordinatorAddress => $"http://127.0.0.1:{Port + CoordinatorPortOffset}";

    public string NodeAddress(int node) => AddressOf(node);

    /// <summary>Only with processes.</summary>
    public string NodeConsoleAddress(int node) => $"http://127.0.0.1:{ConsolePort + node}";

    public string PeerAddress(int node) => AddressOf(PeerPortOffset + node);

    /// <summary>The router's console, on loopback without TLS. It shows the whole cluster, as do the consoles of the nodes.</summary>
    public string ConsoleAddress => NodeConsoleAddress(0);

    /// <summary>The file with the token that is required for changes through the console.</summary>
    public string TokenFile => Path.Combine(Folder, "admin-token");

    /// <summary>The directory of the certificates.</summary>
    public string Certificates => Path.Combine(Folder, "certs");

    /// <summary>The TLS files of a node ("node-1"), the router or a client; null for plain text.</summary>
    public TlsFiles? TlsFilesOf(string who) => Tls ? DevelopmentCertificates.FilesOf(Certificates, who) : null;

    private string AddressOf(int offset) => $"{(Tls ? "https" : "http")}://127.0.0.1:{Port + offset}";
}
