namespace KvCluster.Node.Coordination.Etcd;

/// <summary>How etcd is reached.</summary>
internal sealed record EtcdOptions
{
    /// <summary>Its members, "http://host:port" or all "https://host:port"; at least one. A member that fails is left for the next.</summary>
    public required IReadOnlyList<string> Endpoints { get; init; }

    /// <summary>PEM file with the authorities that may have signed the members' certificates; null: those of the machine.</summary>
    public string? AuthorityFile { get; init; }

    /// <summary>PEM file with this node's client certificate and what leads to its authority; null: none is shown.</summary>
    public string? CertificateFile { get; init; }

    /// <summary>PEM file with the certificate's private key.</summary>
    public string? KeyFile { get; init; }

    /// <summary>For one request, and for a connection, TLS included. Longer than an election of etcd's own.</summary>
    public TimeSpan RequestTime { get; init; } = TimeSpan.FromSeconds(3);

    /// <summary>User to authenticate as; null: none.</summary>
    public string? User { get; init; }

    /// <summary>The user's password.</summary>
    public string Password { get; init; } = "";
}
