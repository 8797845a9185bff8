// Creates certificates, for kv-node certs init, for kv-node certs secrets and for tests. ECDSA on P-256, which every TLS implementation supports.
using System.Net;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>An authority that signs certificates with a key in this process.</summary>
internal sealed class DevelopmentAuthority : IDisposable
{
    private const string ServerUse = "1.3.6.1.5.5.7.3.1";
    private const string ClientUse = "1.3.6.1.5.5.7.3.2";

    /// <summary>How far the clocks of machines that use a new certificate at once may be behind.</summary>
    private static readonly TimeSpan ClockTolerance = TimeSpan.FromMinutes(5);

    private readonly ECDsa _key;
    private readonly X509Certificate2 _certificate;

    /// <param name="name">Its common name.</param>
    /// <param name="from">Start of its validity.</param>
    /// <param name="until">End of its validity, and of the certificates that it signs.</param>
    public DevelopmentAuthority(string name, DateTimeOffset from, DateTimeOffset until)
    {
        _key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        var request = RequestFor(name, _key);
        request.CertificateExtensions.Add(
            new X509BasicConstraintsExtension(certificateAuthority: true, hasPathLengthConstraint: true, pathLengthConstraint: 0, critical: true));
        request.CertificateExtensions.Add(new X509KeyUsageExtension(X509KeyUsageFlags.KeyCertSign | X509KeyUsageFlags.CrlSign, critical: true));
        _certificate = request.CreateSelfSigned(from - ClockTolerance, until);
    }

    private DevelopmentAuthority(X509Certificate2 certificate, ECDsa key) => (_certificate, _key) = (certificate, key);

    /// <summary>When its certificate expires, and with it those that it signs.</summary>
    public DateTimeOffset End => _certificate.NotAfter;

    /// <summary>The hash that tells its certificate from others of the same name.</summary>
    public string Thumbprint => _certificate.Thumbprint;

    public string CertificatePem => _certificate.ExportCertificatePem() + "\n";

    public string KeyPem => _key.ExportPkcs8PrivateKeyPem() + "\n";

    /// <summary>An authority that was created before.</summary>
    /// <param name="certificates">Its certificate, and others that are trusted beside it.</param>
    /// <param name="keyPem">Its ECDSA key, which tells which of the certificates is its own.</param>
    /// <returns>The authority, which owns its certificate from now on; null if the key is that of none of the certificates.</returns>
    /// <exception cref="CryptographicException">The key cannot be read, or is not an ECDSA key.</exception>
    /// <exception cref="ArgumentException">The text contains no unencrypted key.</exception>
    public static DevelopmentAuthority? Find(X509Certificate2Collection certificates, string keyPem)
    {
        var key = ECDsa.Create();
        X509Certificate2? certificate = null;
        try
        {
            key.ImportFromPem(keyPem);
            var own = key.ExportSubjectPublicKeyInfo();
            certificate = certificates.FirstOrDefault(one => one.PublicKey.ExportSubjectPublicKeyInfo().AsSpan().SequenceEqual(own));
            return certificate is null ? null : new DevelopmentAuthority(certificate, key);
        }
        finally
        {
            if (certificate is null)
                key.Dispose();
        }
    }

    /// <summary>Signs a certificate for a client, or for a server that is also a client of others.</summary>
    /// <param name="name">The common name, for people.</param>
    /// <param name="hosts">A server's names and addresses; empty for a client.</param>
    /// <param name="from">Start of its validity.</param>
    /// <param name="until">End of its validity.</param>
    public IssuedCertificate Issue(string name, IReadOnlyCollection<string> hosts, DateTimeOffset from, DateTimeOffset until)
    {
        using var key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        var request = RequestFor(name, key);
        request.CertificateExtensions.Add(new X509BasicConstraintsExtension(certificateAuthority: false, hasPathLengthConstraint: false, 0, critical: true));
        request.CertificateExtensions.Add(new X509KeyUsageExtension(X509KeyUsageFlags.DigitalSignature, critical: true));
        var uses = new OidCollection { new(ClientUse) };
        if (hosts.Count > 0)
        {
            uses.Add(new Oid(ServerUse));
            request.CertificateExtensions.Add(NamesFor(hosts));
        }
        request.CertificateExtensions.Add(new X509EnhancedKeyUsageExtension(uses, critical: false));
        request.CertificateExtensions.Add(
            X509AuthorityKeyIdentifierExtension.CreateFromCertificate(_certificate, includeKeyIdentifier: true, includeIssuerAndSerial: false));
        using var certificate = request.Create(
            _certificate.SubjectName, X509SignatureGenerator.CreateForECDsa(_key), from - ClockTolerance, until, RandomNumberGenerator.GetBytes(16));
        return new IssuedCertificate(certificate.ExportCertificatePem() + "\n", key.ExportPkcs8PrivateKeyPem() + "\n");
    }

    public void Dispose()
    {
        _certificate.Dispose();
        _key.Dispose();
    }

    private static CertificateRequest RequestFor(string name, ECDsa key)
    {
        var subject = new X500DistinguishedNameBuilder();
        subject.AddCommonName(name);
        var request = new CertificateRequest(subject.Build(), key, HashAlgorithmName.SHA256);
        request.CertificateExtensions.Add(new X509SubjectKeyIdentifierExtension(request.PublicKey, critical: false));
        return request;
    }

    private static X509Extension NamesFor(IEnumerable<string> hosts)
    {
        var names = new SubjectAlternativeNameBuilder();
        foreach (var host in hosts)
        {
            if (IPAddress.TryParse(host, out var address))
                names.AddIpAddress(address);
            else
                names.AddDnsName(host);
        }
        return names.Build();
    }
}

/// <summary>A certificate and its private key, as PEM.</summary>
internal sealed record IssuedCertificate(string CertificatePem, string KeyPem);
