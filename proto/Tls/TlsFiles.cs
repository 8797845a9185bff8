namespace KvCluster.Tls;

/// <summary>The PEM files that one side of TLS uses.</summary>
internal sealed record TlsFiles
{
    /// <summary>The authorities that may have signed the other side's certificate; null: those of the machine.</summary>
    public string? AuthorityFile { get; init; }

    /// <summary>The certificate to show, and what leads from it to its authority; null: none is shown.</summary>
    public string? CertificateFile { get; init; }

    /// <summary>The certificate's private key; null: it is in the certificate's file.</summary>
    public string? KeyFile { get; init; }

    /// <summary>Whether the certificate itself must be of the authorities, as among nodes, who show it to one another.</summary>
    public bool IsOfAuthority { get; init; }

    /// <summary>What the certificate must name, for others ask for it; null: anything.</summary>
    public string? RequiredName { get; init; }
}
