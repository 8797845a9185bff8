using System.Net;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.Processes;

/// <summary>An authority, a certificate for servers on loopback and one for clients, made for one test, as PEM files in its directory.</summary>
internal sealed class EtcdCertificates
{
    private readonly string _folder;

    public EtcdCertificates(string folder)
    {
        _folder = Directory.CreateDirectory(folder).FullName;
        var request = RequestFor("CN=test authority", out var key);
        request.CertificateExtensions.Add(new X509BasicConstraintsExtension(certificateAuthority: true, hasPathLengthConstraint: false, 0, critical: true));
        using var authority = request.CreateSelfSigned(From, Until);
        File.WriteAllText(AuthorityFile, authority.ExportCertificatePem());
        Issue(authority, "server", "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2");
        Issue(authority, "client", "1.3.6.1.5.5.7.3.2");
        key.Dispose();
    }

    public string AuthorityFile => Path.Combine(_folder, "ca.pem");

    public string ServerFile => Path.Combine(_folder, "server.pem");

    public string ServerKeyFile => Path.Combine(_folder, "server-key.pem");

    public string ClientFile => Path.Combine(_folder, "client.pem");

    public string ClientKeyFile => Path.Combine(_folder, "client-key.pem");

    private static DateTimeOffset From => DateTimeOffset.UtcNow.AddDays(-1);

    private static DateTimeOffset Until => DateTimeOffset.UtcNow.AddDays(1);

    private static CertificateRequest RequestFor(string name, out ECDsa key)
    {
        key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        return new CertificateRequest(name, key, HashAlgorithmName.SHA256);
    }

    private void Issue(X509Certificate2 authority, string name, params string[] uses)
    {
        var request = RequestFor("CN=" + name, out var key);
        request.CertificateExtensions.Add(new X509EnhancedKeyUsageExtension([.. uses.Select(use => new Oid(use))], critical: false));
        var names = new SubjectAlternativeNameBuilder();
        names.AddIpAddress(IPAddress.Loopback);
        request.CertificateExtensions.Add(names.Build());
        using var certificate = request.Create(authority, From.AddMinutes(1), Until.AddMinutes(-1), RandomNumberGenerator.GetBytes(8));
        File.WriteAllText(Path.Combine(_folder, name + ".pem"), certificate.ExportCertificatePem());
        File.WriteAllText(Path.Combine(_folder, name + "-key.pem"), key.ExportPkcs8PrivateKeyPem());
        key.Dispose();
    }
}
