using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>How a node or router secures the connections that it accepts and makes.</summary>
internal sealed record ServerTlsOptions
{
    /// <summary>The cluster's authority, and this process's certificate and key.</summary>
    public required TlsFiles Files { get; init; }

    /// <summary>
    /// Whether every client must present a certificate of the authority. Otherwise it may. A certificate of another authority is refused in any case.
    /// </summary>
    public bool RequiresClientCertificate { get; init; }

    /// <summary>A connection whose handshake takes longer is closed, so that nobody can hold connections open without presenting a certificate.</summary>
    public TimeSpan HandshakeTimeMax { get; init; } = TimeSpan.FromSeconds(5);
}
