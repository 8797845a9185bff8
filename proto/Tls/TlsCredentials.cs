// The content of TLS files at one moment, validated and parsed. Read from any thread; replaced as a whole when the files change. Never disposed, because
// connections made with it may outlive it; it is collected with the last of them.
using System.Net.Security;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.Tls;

/// <summary>An immutable snapshot of TLS files.</summary>
internal sealed class TlsCredentials
{
    private readonly X509Certificate2Collection? _authorities;

    private TlsCredentials(TlsFiles files, X509Certificate2Collection? authorities, X509Certificate2? own, SslStreamCertificateContext? context)
    {
        Files = files;
        _authorities = authorities;
        Own = own;
        Context = context;
    }

    public TlsFiles Files { get; }

    /// <summary>The certificate to present, with its key; null if there is none.</summary>
    public X509Certificate2? Own { get; }

    /// <summary>A name that the own certificate is valid for; null if it has none.</summary>
    public string? OwnName => Own is null ? null : CertificateRefusal.NamesOf(Own).FirstOrDefault()?.Replace("*", "any", StringComparison.Ordinal);

    /// <summary>The certificate with its chain, as SslStream needs it.</summary>
    public SslStreamCertificateContext? Context { get; }

    /// <summary>When the own certificate or one in its chain expires, whichever is first, and the file that it is in; null if there is none.</summary>
    public (DateTimeOffset At, string File)? End { get; private init; }

    /// <summary>How the other side's certificate is checked; null means by the machine's policy.</summary>
    public X509ChainPolicy? ChainPolicy => _authorities is null ? null : PolicyOf(_authorities);

    /// <summary>Parses the content of the files.</summary>
    /// <param name="files">The names of the files.</param>
    /// <param name="contents">The text of each named file.</param>
    /// <param name="now">Tells which certificates have expired or are not valid yet.</param>
    /// <exception cref="UnusableFileException">A file does not hold what it should.</exception>
    public static TlsCredentials Parse(TlsFiles files, TlsFileContents contents, DateTimeOffset now)
    {
        var authorities = files.AuthorityFile is { } authorityFile ? CertificatesIn(authorityFile, contents.Authority) : null;
        if (files.CertificateFile is not { } certificateFile)
            return new TlsCredentials(files, authorities, own: null, context: null);
        try
        {
            return WithCertificate(files, contents, certificateFile, authorities, now);
        }
        catch (CryptographicException failure)
        {
            // A name or a chain that cannot be decoded.
            throw new UnusableFileException(certificateFile, failure.Message);
        }
    }

    private static TlsCredentials WithCertificate(
        TlsFiles files, TlsFileContents contents, string certificateFile, X509Certificate2Collection? authorities, DateTimeOffset now)
    {
        var path = CertificatesIn(certificateFile, contents.Certificate);
        var own = WithKey(files, contents);
        CheckTime(certificateFile, own, now);
        if (files.RequiredName is { } name && !NodeNames.Cover(CertificateRefusal.NamesOf(own), name))
            throw new UnusableFileException(certificateFile, $"the certificate {own.Subject} does not name {name} but "
                + $"{string.Join(", ", CertificateRefusal.NamesOf(own).DefaultIfEmpty("nothing"))}");
        var end = (At: Utc(own.NotAfter), File: certificateFile);
        if (files.IsOfAuthority && authorities is not null)
            end = EndOfChain(files, own, path, authorities, now);
        return new TlsCredentials(files, authorities, own, SslStreamCertificateContext.Create(own, path, offline: true)) { End = end };
    }

    /// <summary>How the other side's certificate is checked that one of these authorities has signed.</summary>
    public static X509ChainPolicy PolicyOf(X509Certificate2Collection authorities)
    {
        var policy = new X509ChainPolicy
        {
            TrustMode = X509ChainTrustMode.CustomRootTrust,
            RevocationMode = X509RevocationMode.NoCheck,
            // Nothing is downloaded from addresses in a stranger's certificate.
            DisableCertificateDownloads = true,
        };
        policy.CustomTrustStore.AddRange(authorities);
        return policy;
    }

    private static X509Certificate2Collection CertificatesIn(string file, string text)
    {
        var certificates = new X509Certificate2Collection();
        try
        {
            certificates.ImportFromPem(text);
        }
        catch (CryptographicException failure)
        {
            throw new UnusableFileException(file, failure.Message);
        }
        return certificates.Count > 0 ? certificates : throw new UnusableFileException(file, "it contains no certificate");
    }

    private static X509Certificate2 WithKey(TlsFiles files, TlsFileContents contents)
    {
        var keyFile = files.KeyFile ?? files.CertificateFile!;
        if (!contents.Key.Contains("PRIVATE KEY-----", StringComparison.Ordinal))
            throw new UnusableFileException(keyFile, "it contains no private key");
        if (contents.Key.Contains("BEGIN ENCRYPTED PRIVATE KEY-----", StringComparison.Ordinal))
            throw new UnusableFileException(keyFile, "the key is encrypted; only unencrypted keys can be read");
        try
        {
            return X509Certificate2.CreateFromPem(contents.Certificate, contents.Key);
        }
        catch (Exception failure) when (failure is CryptographicException or ArgumentException)
        {
            throw new UnusableFileException(keyFile, $"it is not the key of the certificate in {files.CertificateFile} ({failure.Message})");
        }
    }

    private static void CheckTime(string file, X509Certificate2 certificate, DateTimeOffset now)
    {
        if (now > Utc(certificate.NotAfter))
            throw new UnusableFileException(file, $"the certificate {certificate.Subject} expired at {Utc(certificate.NotAfter):u}");
        if (now < Utc(certificate.NotBefore))
            throw new UnusableFileException(
                file, $"the certificate {certificate.Subject} is not valid before {Utc(certificate.NotBefore):u}; the time here is {now:u}");
    }

    private static (DateTimeOffset At, string File) EndOfChain(
        TlsFiles files, X509Certificate2 own, X509Certificate2Collection path, X509Certificate2Collection authorities, DateTimeOffset now)
    {
        using var chain = new X509Chain { ChainPolicy = PolicyOf(authorities) };
        chain.ChainPolicy.VerificationTime = now.UtcDateTime;
        chain.ChainPolicy.ExtraStore.AddRange(path);
        if (!chain.Build(own))
            throw new UnusableFileException(files.CertificateFile!, $"the certificate {own.Subject} is not signed by an authority in {files.AuthorityFile} "
                + $"({chain.ChainStatus[0].StatusInformation.Trim()})");
        var first = chain.ChainElements.MinBy(element => element.Certificate.NotAfter)!.Certificate;
        return (Utc(first.NotAfter), path.Contains(first) ? files.CertificateFile! : files.AuthorityFile!);
    }

    private static DateTimeOffset Utc(DateTime local) => new(local.ToUniversalTime());
}
