namespace KvCluster.Tls;

/// <summary>The PEM files that one side of TLS uses.</summary>
internal sealed record TlsFiles
{
    /// <summary>The authorities that may have signed the other side's certificate; null means those of the machine.</summary>
    public string? AuthorityFile { get; init; }

    /// <summary>The certificate to present and its chain up to the authority; null means that none is presented.</summary>
    public string? CertificateFile { get; init; }

    /// <summary>The certificate's private key; null if it is in the certificate's file.</summary>
    public string? KeyFile { get; init; }

    /// <summary>Whether the certificate itself must be signed by the authorities, as among nodes, which present it to one another.</summary>
    public bool IsOfAuthority { get; init; }

    /// <summary>The name that the certificate must have because others require it; null means any.</summary>
    public string? RequiredName { get; init; }
}

/// <summary>A file with certificates, a key or a secret cannot be used. The message is one line that names the file and says why.</summary>
internal sealed class UnusableFileException(string file, string reason) : Exception($"{file} is not usable: {reason}");
