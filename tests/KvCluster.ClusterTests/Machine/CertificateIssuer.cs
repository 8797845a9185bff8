using System.Net;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;

namespace KvCluster.ClusterTests;

/// <summary>The development authority of a local cluster, with its key: it issues certificates for nodes as an operator's own authority does.</summary>
/// <param name="folder">The directory that `kv-node certs init` or the launcher has made.</param>
internal sealed class CertificateIssuer(string folder) : IDisposable
{
    private const string ServerUse = "1.3.6.1.5.5.7.3.1";
    private const string ClientUse = "1.3.6.1.5.5.7.3.2";

    private readonly X509Certificate2 _authority = X509Certificate2.CreateFromPemFile(Path.Combine(folder, "ca.crt"), Path.Combine(folder, "ca.key"));

    /// <summary>Writes a certificate and its key into a directory, which it creates if it does not exist.</summary>
    /// <param name="target">The directory.</param>
    /// <param name="node">The node that the certificate names.</param>
    /// <param name="validity">The time until it expires.</param>
    public void Issue(string target, int node, TimeSpan validity)
    {
        Directory.CreateDirectory(target);
        using var key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        var request = new CertificateRequest($"CN=node-{node}", key, HashAlgorithmName.SHA256);
        request.CertificateExtensions.Add(new X509EnhancedKeyUsageExtension([new Oid(ServerUse), new Oid(ClientUse)], critical: false));
        var names = new SubjectAlternativeNameBuilder();
        names.AddDnsName($"node-{node}.local.kvcluster");
        names.AddIpAddress(IPAddress.Loopback);
        request.CertificateExtensions.Add(names.Build());
        // Not before the authority, which is valid from some minutes before it was made.
        var now = DateTimeOffset.UtcNow;
        using var certificate = request.Create(_authority, now.AddMinutes(-1), now + validity, RandomNumberGenerator.GetBytes(16));
        File.WriteAllText(Path.Combine(target, "tls.key"), key.ExportPkcs8PrivateKeyPem() + "\n");
        File.WriteAllText(Path.Combine(target, "tls.crt"), certificate.ExportCertificatePem() + "\n");
    }

    public void Dispose() => _authority.Dispose();
}
