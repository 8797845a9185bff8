using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Certificates of one or more authorities, made for one test, as PEM files in a directory of their own.</summary>
internal sealed class CertificateFolder : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public static DateTimeOffset Now => DateTimeOffset.UtcNow;

    public static DevelopmentAuthority Authority(string name = "authority", DateTimeOffset? now = null) =>
        new(name, (now ?? Now).AddDays(-30), (now ?? Now).AddDays(365));

    public string PathOf(string name) => Path.Combine(_directory.Path, name);

    /// <summary>Replaces a file in one step, as tools that renew certificates do.</summary>
    public string Write(string name, string text)
    {
        File.WriteAllText(PathOf(name + ".new"), text);
        File.Move(PathOf(name + ".new"), PathOf(name), overwrite: true);
        return PathOf(name);
    }

    public void Write(string name, IssuedCertificate certificate)
    {
        Write($"{name}-key.pem", certificate.KeyPem);
        Write($"{name}.pem", certificate.CertificatePem);
    }

    /// <summary>Files of a certificate of this authority, which is the trusted one.</summary>
    public TlsFiles Issue(DevelopmentAuthority authority, string name, params string[] hosts) =>
        Issue(authority, name, Now.AddDays(-1), Now.AddDays(30), hosts);

    /// <inheritdoc cref="Issue(DevelopmentAuthority, string, string[])"/>
    public TlsFiles Issue(DevelopmentAuthority authority, string name, DateTimeOffset from, DateTimeOffset until, params string[] hosts)
    {
        Write("ca.pem", authority.CertificatePem);
        Write(name, authority.Issue(name, hosts, from, until));
        return FilesOf(name);
    }

    public TlsFiles FilesOf(string name) =>
        new() { AuthorityFile = PathOf("ca.pem"), CertificateFile = PathOf($"{name}.pem"), KeyFile = PathOf($"{name}-key.pem") };

    public void Dispose() => _directory.Dispose();
}
