using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>
/// The directory that kv-node certs init creates: an authority, and a directory for each node, the routers and clients with the three files that its holder
/// needs. The files have the names that Kubernetes gives them in a secret, so each of these directories is one.
/// </summary>
internal static class DevelopmentCertificates
{
    /// <summary>Longer than the certificates, which are created again with a new authority.</summary>
    internal const int AuthorityYears = 10;

    /// <summary>The longest validity that browsers and Apple's systems accept from any authority.</summary>
    internal const int CertificateDays = 397;

    internal const string AuthorityFile = "ca.crt";
    internal const string AuthorityKeyFile = "ca.key";
    internal const string CertificateFile = "tls.crt";
    internal const string KeyFile = "tls.key";

    private static readonly string[] Loopback = ["localhost", "127.0.0.1", "::1"];

    /// <summary>Writes the directory, and creates it if it does not exist. Keys are readable by their owner only.</summary>
    /// <param name="folder">The directory.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="nodes">The ids of the nodes, which get one certificate each; null: all nodes, also later ones, share one.</param>
    /// <param name="hosts">Names and addresses of nodes and routers besides loopback. Each of their certificates has all of them.</param>
    /// <param name="now">Start of their validity.</param>
    /// <returns>The files written.</returns>
    /// <exception cref="IOException">One of the files exists; nothing was written.</exception>
    public static IReadOnlyList<string> Create(string folder, string cluster, IEnumerable<NodeId>? nodes, IReadOnlyCollection<string> hosts, DateTimeOffset now)
    {
        using var authority = new DevelopmentAuthority($"KvCluster {cluster} development authority", now, now.AddYears(AuthorityYears));
        var files = new List<(string Name, string Text, bool IsSecret)> { (AuthorityFile, authority.CertificatePem, false),
            (AuthorityKeyFile, authority.KeyPem, true) };
        if (nodes is null)
            Issue("node", [NodeNames.OfEveryNode(cluster), .. Loopback, .. hosts]);
        foreach (var node in nodes ?? [])
            Issue($"node-{node}", [NodeNames.OfNode(node.Value, cluster), .. Loopback, .. hosts]);
        Issue("router", [NodeNames.OfRouter(cluster), .. Loopback, .. hosts]);
        Issue("client", []);
        if (files.Find(file => File.Exists(Path.Combine(folder, file.Name))) is { Name: { } there })
            throw new IOException($"{Path.Combine(folder, there)} already exists; nothing was written. Name another directory, or remove the old one.");
        foreach (var (name, text, isSecret) in files)
            Write(Path.Combine(folder, name), text, isSecret);
        return [.. files.Select(file => file.Name)];

        void Issue(string name, string[] names)
        {
            var issued = authority.Issue(name, names, now, now.AddDays(CertificateDays));
            files.Add((Path.Combine(name, AuthorityFile), authority.CertificatePem, false));
            files.Add((Path.Combine(name, CertificateFile), issued.CertificatePem, false));
            files.Add((Path.Combine(name, KeyFile), issued.KeyPem, true));
        }
    }

    /// <summary>The files for one holder of a certificate in the directory: "node-1", "node" for all nodes, "router", "client".</summary>
    public static TlsFiles FilesOf(string folder, string who) => new()
    {
        AuthorityFile = Path.Combine(folder, who, AuthorityFile),
        CertificateFile = Path.Combine(folder, who, CertificateFile),
        KeyFile = Path.Combine(folder, who, KeyFile),
    };

    private static void Write(string path, string text, bool isSecret)
    {
        Directory.CreateDirectory(Path.GetDirectoryName(path)!);
        var options = new FileStreamOptions { Mode = FileMode.CreateNew, Access = FileAccess.Write };
        if (!OperatingSystem.IsWindows())
        {
            options.UnixCreateMode = UnixFileMode.UserRead | UnixFileMode.UserWrite;
            if (!isSecret)
                options.UnixCreateMode |= UnixFileMode.GroupRead | UnixFileMode.OtherRead;
        }
        using var writer = new StreamWriter(path, options);
        writer.Write(text);
    }
}
