namespace KvCluster.Client;

/// <summary>
/// What a client trusts and shows on https endpoints. PEM files; one that changes is read again with the next connection, and connections that
/// stand go on.
/// </summary>
public sealed class KvTlsOptions
{
    /// <summary>File with the authorities that may have signed the servers' certificates; null: those that the machine trusts.</summary>
    public string? AuthorityFile { get; init; }

    /// <summary>File with the client's certificate and what leads from it to its authority; null: none is shown.</summary>
    public string? CertificateFile { get; init; }

    /// <summary>File with that certificate's private key; null: it is in the certificate's file.</summary>
    public string? KeyFile { get; init; }

    /// <summary>What every server's certificate must name; null: the host of the address that was connected to.</summary>
    public string? ServerName { get; init; }
}
