namespace KvCluster.Node.Coordination.Etcd;

/// <summary>How to connect to etcd.</summary>
internal sealed record EtcdOptions
{
    /// <summary>The members, "http://host:port" or all "https://host:port"; at least one. When a member fails, the next one is used.</summary>
    public required IReadOnlyList<string> Endpoints { get; init; }

    /// <summary>PEM file with the authorities that may have signed the members' certificates; null: the machine's.</summary>
    public string? AuthorityFile { get; init; }

    /// <summary>PEM file with this node's client certificate and the chain to its authority; null: none is presented.</summary>
    public string? CertificateFile { get; init; }

    /// <summary>PEM file with the certificate's private key.</summary>
    public string? KeyFile { get; init; }

    /// <summary>Timeout of one request, and of a connection, TLS included. Longer than an election of etcd.</summary>
    public TimeSpan RequestTime { get; init; } = TimeSpan.FromSeconds(3);

    /// <summary>How long a member that sends a snapshot may send nothing. Longer than an election, and than a busy disk takes to read a part.</summary>
    public TimeSpan SnapshotSilenceMax { get; init; } = TimeSpan.FromSeconds(30);

    /// <summary>User to authenticate as; null: none.</summary>
    public string? User { get; init; }

    /// <summary>The user's password.</summary>
    public string Password { get; init; } = "";
}
