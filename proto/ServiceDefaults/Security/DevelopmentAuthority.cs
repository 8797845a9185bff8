// Creates certificates for development and tests, for kv-node certs init and the tests themselves. ECDSA on P-256, which every TLS implementation supports.
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

    private readonly ECDsa _key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
    private readonly X509Certificate2 _certificate;

    /// <param name="name">Its common name.</param>
    /// <param name="from">Start of its validity.</param>
    /// <param name="until">End of its validity, and of the certificates that it signs.</param>
    public DevelopmentAuthority(string name, DateTimeOffset from, DateTimeOffset until)
    {
        var request = RequestFor(name, _key);
        request.CertificateExtensions.Add(new X509BasicConstraintsExtension(certificateAuthority: true, hasPathLengthConstraint: true, pathLengthConstraint: 0, critical: true));
        request.CertificateExtensions.Add(new X509KeyUsageExtension(X509KeyUsageFlags.KeyCertSign | X509KeyUsageFlags.CrlSign, critical: true));
        _certificate = request.CreateSelfSigned(from - ClockTolerance, until);
    }

    public string CertificatePem => _certificate.ExportCertificatePem() + "\n";

    public string KeyPem => _key.ExportPkcs8PrivateKeyPem() + "\n";

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
        request.CertificateExtensions.Add(X509AuthorityKeyIdentifierExtension.CreateFromCertificate(_certificate, includeKeyIdentifier: true, includeIssuerAndSerial: false));
        using var certificate = request.Create(_certificate.SubjectName, X509SignatureGenerator.CreateForECDsa(_key), from - ClockTolerance, until, RandomNumberGenerator.GetBytes(16));
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
