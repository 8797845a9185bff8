using System.Net.Security;
using System.Security.Cryptography.X509Certificates;
using KvCluster.Tls;

namespace KvCluster.Client;

/// <summary>
/// Which certificates a client trusts and presents on https endpoints: those of PEM files, or objects that the program has. A changed file is read again with
/// the next connection; existing connections are unaffected. Objects must not be disposed of before the client.
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

    /// <summary>The authorities as objects, instead of <see cref="AuthorityFile"/>.</summary>
    public X509Certificate2Collection? Authorities { get; set; }

    /// <summary>The client's certificate with its private key as an object, instead of <see cref="CertificateFile"/>.</summary>
    public X509Certificate2? Certificate { get; set; }

    /// <summary>
    /// Asked for the client's certificate with its private key when a connection is made, instead of <see cref="Certificate"/>, so that it can be renewed. Null
    /// as its answer means that none is presented. It is called on any thread, and the connection fails if it throws.
    /// </summary>
    public Func<X509Certificate2?>? CertificateSource { get; set; }

    /// <summary>
    /// The certificates between that of <see cref="Certificate"/> or <see cref="CertificateSource"/> and the authority, which are presented with it.
    /// </summary>
    public X509Certificate2Collection? CertificateChain { get; set; }

    /// <summary>
    /// Decides whether a server's certificate is accepted. It is told what is wrong with its name and its authority, and its answer counts, also if nothing
    /// is. Null means that nothing may be wrong. It is called on any thread, for each connection.
    /// </summary>
    public RemoteCertificateValidationCallback? ValidateServer { get; set; }

    /// <summary>What is wrong with the options, a sentence for each mistake. Files are not looked at.</summary>
    internal IEnumerable<string> Mistakes()
    {
        const string Tls = nameof(KvClientOptions.Tls);
        if (this is { KeyFile: not null, CertificateFile: null })
            yield return $"{Tls}.{nameof(KeyFile)} requires {nameof(CertificateFile)}, which is not set.";
        if (this is { AuthorityFile: not null, Authorities: not null })
            yield return $"{Tls}: {nameof(AuthorityFile)} and {nameof(Authorities)} exclude each other.";
        if (((object?[])[CertificateFile, Certificate, CertificateSource]).Count(static one => one is not null) > 1)
            yield return $"{Tls}: {nameof(CertificateFile)}, {nameof(Certificate)} and {nameof(CertificateSource)} exclude each other.";
        if (Certificate is { HasPrivateKey: false })
            yield return $"{Tls}.{nameof(Certificate)} has no private key.";
        if (this is { CertificateChain: not null, Certificate: null, CertificateSource: null })
            yield return $"{Tls}.{nameof(CertificateChain)} requires {nameof(Certificate)} or {nameof(CertificateSource)}; a file has its chain itself.";
    }

    /// <summary>What is not in files.</summary>
    internal GivenCredentials ToCredentials()
    {
        var (authorities, chain, source) = (CopyOf(Authorities), CopyOf(CertificateChain), CertificateSource);
        if (Certificate is { } certificate)
        {
            var context = SslStreamCertificateContext.Create(certificate, chain, offline: true);
            return new GivenCredentials { Authorities = authorities, Own = () => context, Accept = ValidateServer };
        }
        return new GivenCredentials
        {
            Authorities = authorities,
            Own = source is null ? null : () => source() is { } asked ? SslStreamCertificateContext.Create(asked, chain, offline: true) : null,
            Accept = ValidateServer,
        };
    }

    // The options may be changed afterwards.
    private static X509Certificate2Collection? CopyOf(X509Certificate2Collection? certificates) => certificates is null ? null : new(certificates);
}
