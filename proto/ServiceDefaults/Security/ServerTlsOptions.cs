using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>How a node or router secures the connections that it takes and makes.</summary>
internal sealed record ServerTlsOptions
{
    /// <summary>The cluster's authority, and this process's certificate and key.</summary>
    public required TlsFiles Files { get; init; }

    /// <summary>Whether every client must show a certificate of the authority. Otherwise it may; one of another authority is refused in any case.</summary>
    public bool RequiresClientCertificate { get; init; }

    /// <summary>A connection whose handshake is not over after this is closed: nobody holds connections open who shows no certificate.</summary>
    public TimeSpan HandshakeTimeMax { get; init; } = TimeSpan.FromSeconds(5);
}
