using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>The directory that kv-node certs init creates.</summary>
public sealed class DevelopmentCertificatesTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    [Fact]
    public void Create_MakesUsableCertificates()
    {
        var written = Create();
        Assert.Equal(written.Order(), Written().Order());
        foreach (var (name, required) in ((string, string?)[])[("node-1", "node-1.local.kvcluster"),
            ("node-2", "node-2.local.kvcluster"), ("router", "router.local.kvcluster"), ("client", null)])
        {
            var credentials = CredentialsOf(name, required);
            Assert.InRange((credentials.End!.Value.At - DateTimeOffset.UtcNow).TotalDays, 390, 400);
            string[] hosts = [.. CertificateRefusal.NamesOf(credentials.Own!)];
            if (required is null)
                Assert.Empty(hosts);
            else
                Assert.Superset(new HashSet<string> { "localhost", "127.0.0.1", "::1", "kv.example" }, hosts.ToHashSet());
        }
    }

    [Fact]
    public void Create_ClientCertificates_AreNotValidForServers()
    {
        Create();
        Assert.Equal(["1.3.6.1.5.5.7.3.2"], UsesOf("client"));
        Assert.Equal(["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"], UsesOf("node-1").Order());
    }

    [Fact]
    public void Create_Keys_AreReadableByTheirOwnerOnly()
    {
        if (OperatingSystem.IsWindows())
            return;
        foreach (var file in Create())
        {
            var others = File.GetUnixFileMode(PathOf(file)) & ~(UnixFileMode.UserRead | UnixFileMode.UserWrite);
            Assert.True(!file.EndsWith(".key", StringComparison.Ordinal) || others == UnixFileMode.None, $"{file}: {others}");
        }
    }

    [Fact]
    public void Create_FileExists_WritesNothing()
    {
        var key = DevelopmentCertificates.FilesOf(_directory.Path, "client").KeyFile!;
        Directory.CreateDirectory(Path.GetDirectoryName(key)!);
        File.WriteAllText(key, "mine");
        Assert.Contains(key, Assert.Throws<IOException>(Create).Message, StringComparison.Ordinal);
        Assert.Equal("mine", File.ReadAllText(PathOf(Assert.Single(Written()))));
    }

    /// <summary>The chart's secret of the nodes had another shape than these files, and could not be made from them.</summary>
    [Fact]
    public void Create_ForAllNodes_MakesOneSecretThatNamesEach()
    {
        DevelopmentCertificates.Create(_directory.Path, "local", nodes: null, ["kv.example"], DateTimeOffset.UtcNow);
        Assert.Equal(["ca.crt", "tls.crt", "tls.key"], Directory.GetFiles(PathOf("node")).Select(Path.GetFileName).Order());
        foreach (var node in (uint[])[1, 200])
            Assert.NotNull(CredentialsOf("node", NodeNames.OfNode(node, "local")).Own);
    }

    private IReadOnlyList<string> Create() => DevelopmentCertificates.Create(_directory.Path, "local", [new(1), new(2)], ["kv.example"], DateTimeOffset.UtcNow);

    private TlsCredentials CredentialsOf(string name, string? required) =>
        new CredentialFiles(
            DevelopmentCertificates.FilesOf(_directory.Path, name) with { IsOfAuthority = true, RequiredName = required }, TimeProvider.System).Current;

    private IEnumerable<string> Written() =>
        Directory.GetFiles(_directory.Path, "*", SearchOption.AllDirectories).Select(file => Path.GetRelativePath(_directory.Path, file));

    private string PathOf(string name) => Path.Combine(_directory.Path, name);

    private IEnumerable<string> UsesOf(string name)
    {
        using var certificate = X509Certificate2.CreateFromPem(File.ReadAllText(DevelopmentCertificates.FilesOf(_directory.Path, name).CertificateFile!));
        return [.. certificate.Extensions.OfType<X509EnhancedKeyUsageExtension>().Single().EnhancedKeyUsages.Cast<Oid>().Select(use => use.Value!)];
    }
}
