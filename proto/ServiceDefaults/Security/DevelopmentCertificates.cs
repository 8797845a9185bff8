using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>The folder that kv-node certs init makes: an authority, and certificates for nodes, routers and clients, each with its key.</summary>
internal static class DevelopmentCertificates
{
    /// <summary>Ends long after the certificates, which are made anew with a new authority.</summary>
    private const int AuthorityYears = 10;

    /// <summary>What browsers and Apple's systems take from any authority at most.</summary>
    private const int CertificateDays = 397;

    private static readonly string[] Loopback = ["localhost", "127.0.0.1", "::1"];

    /// <summary>Writes the folder. Keys are readable by their owner only; the folder is created if it is not there.</summary>
    /// <param name="folder">Where.</param>
    /// <param name="cluster">The cluster's name.</param>
    /// <param name="nodes">A certificate for each.</param>
    /// <param name="hosts">Names and addresses by which nodes and routers are reached, besides loopback. In each of their certificates.</param>
    /// <param name="now">When they begin.</param>
    /// <returns>The files written.</returns>
    /// <exception cref="IOException">One of the files is there already; nothing was written.</exception>
    public static IReadOnlyList<string> Create(string folder, string cluster, IEnumerable<uint> nodes, IReadOnlyCollection<string> hosts, DateTimeOffset now)
    {
        using var authority = new DevelopmentAuthority($"KvCluster {cluster} development authority", now, now.AddYears(AuthorityYears));
        var files = new List<(string Name, string Text, bool IsSecret)> { ("ca.pem", authority.CertificatePem, false), ("ca-key.pem", authority.KeyPem, true) };
        foreach (var node in nodes)
            Issue($"node-{node}", [NodeNames.OfNode(node, cluster), .. Loopback, .. hosts]);
        Issue("router", [NodeNames.OfRouter(cluster), .. Loopback, .. hosts]);
        Issue("client", []);
        Directory.CreateDirectory(folder);
        if (files.Find(file => File.Exists(Path.Combine(folder, file.Name))) is { Name: { } there })
            throw new IOException($"{Path.Combine(folder, there)} is there already; nothing was written. Name another folder, or remove the old one.");
        foreach (var (name, text, isSecret) in files)
            Write(Path.Combine(folder, name), text, isSecret);
        return [.. files.Select(file => file.Name)];

        void Issue(string name, string[] names)
        {
            var issued = authority.Issue(name, names, now, now.AddDays(CertificateDays));
            files.Add(($"{name}.pem", issued.CertificatePem, false));
            files.Add(($"{name}-key.pem", issued.KeyPem, true));
        }
    }

    /// <summary>The files of one who has a certificate there: "node-1", "router", "client".</summary>
    public static TlsFiles FilesOf(string folder, string who) => new()
    {
        AuthorityFile = Path.Combine(folder, "ca.pem"),
        CertificateFile = Path.Combine(folder, $"{who}.pem"),
        KeyFile = Path.Combine(folder, $"{who}-key.pem"),
    };

    private static void Write(string path, string text, bool isSecret)
    {
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
