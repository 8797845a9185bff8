namespace KvCluster.Client;

/// <summary>
/// Which certificates a client trusts and presents on https endpoints. The files are PEM. A changed file is read again with the next connection; existing
/// connections are unaffected.
/// </summary>
public sealed class KvTlsOptions
{
    /// <summary>File with the authorities that may have signed the servers' certificates; null means those that the machine trusts.</summary>
    public string? AuthorityFile { get; set; }

    /// <summary>File with the client's certificate and its chain up to the authority; null means that none is presented.</summary>
    public string? CertificateFile { get; set; }

    /// <summary>File with that certificate's private key; null if it is in the certificate's file.</summary>
    public string? KeyFile { get; set; }

    /// <summary>The name that every server's certificate must have; null means the host of the address.</summary>
    public string? ServerName { get; set; }
}
