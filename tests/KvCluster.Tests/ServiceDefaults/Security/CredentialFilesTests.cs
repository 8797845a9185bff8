using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Reading of TLS files. Each mistake is one line that names the file, and a later invalid change leaves the former credentials in use.</summary>
public sealed class CredentialFilesTests : IDisposable
{
    private readonly CertificateFolder _folder = new();

    public void Dispose() => _folder.Dispose();

    [Fact]
    public void Create_WithValidFiles_KnowsTheExpiry()
    {
        using var authority = CertificateFolder.Authority();
        var until = CertificateFolder.Now.AddDays(10);
        var files = _folder.Issue(
            authority, "node-1", CertificateFolder.Now, until, "node-1.c.kvcluster") with { IsOfAuthority = true, RequiredName = "node-1.c.kvcluster" };
        var credentials = Open(files).Current;
        Assert.Equal("CN=node-1", credentials.Own!.Subject);
        Assert.True(credentials.Own.HasPrivateKey);
        Assert.Equal(files.CertificateFile, credentials.End!.Value.File);
        Assert.True((until - credentials.End.Value.At).Duration() < TimeSpan.FromSeconds(1));
    }

    [Fact]
    public void Create_AuthorityExpiresFirst_NamesItsFile()
    {
        var until = CertificateFolder.Now.AddDays(2);
        using var authority = new DevelopmentAuthority("short", CertificateFolder.Now, until);
        var files = _folder.Issue(authority, "node-1", CertificateFolder.Now, until.AddDays(30), "n") with { IsOfAuthority = true };
        var end = Open(files).Current.End!.Value;
        Assert.Equal(files.AuthorityFile, end.File);
        Assert.True((until - end.At).Duration() < TimeSpan.FromSeconds(1));
    }

    [Fact]
    public void Create_WithTwoAuthorities_AcceptsACertificateOfEither()
    {
        using var old = CertificateFolder.Authority("old");
        using var next = CertificateFolder.Authority("next");
        var files = _folder.Issue(next, "node-1", "n") with { IsOfAuthority = true };
        _folder.Write("ca.pem", old.CertificatePem + next.CertificatePem);
        Assert.NotNull(Open(files).Current.Own);
    }

    [Fact]
    public void Create_WithAnUnusableFile_SaysWhyInOneLine()
    {
        using var authority = CertificateFolder.Authority();
        using var other = CertificateFolder.Authority("other");
        var now = CertificateFolder.Now;
        var good = _folder.Issue(authority, "good", "n");
        var ended = _folder.Issue(authority, "ended", now.AddDays(-3), now.AddDays(-1), "n");
        var future = _folder.Issue(authority, "future", now.AddDays(1), now.AddDays(2), "n");
        Refused(ended, "ended.pem is not usable: the certificate CN=ended expired at ");
        Refused(future, "future.pem is not usable: the certificate CN=future is not valid before ");
        Refused(good with { KeyFile = ended.KeyFile }, $"ended-key.pem is not usable: it is not the key of the certificate in {good.CertificateFile}");
        Refused(good with { KeyFile = good.CertificateFile }, "good.pem is not usable: it contains no private key");
        Refused(good with { CertificateFile = _folder.Write("text.pem", "nothing") }, "text.pem is not usable: it contains no certificate");
        Refused(good with { AuthorityFile = _folder.PathOf("text.pem") }, "text.pem is not usable: it contains no certificate");
        Refused(good with { AuthorityFile = _folder.PathOf("absent.pem") }, "absent.pem is not usable: ");
        Refused(good with { CertificateFile = Path.GetDirectoryName(good.CertificateFile) }, "is not usable: ");
        Refused(good with { RequiredName = "node-1.c.kvcluster" }, "good.pem is not usable: the certificate CN=good does not name node-1.c.kvcluster but n");
        _folder.Write("ca.pem", other.CertificatePem);
        Refused(good with { IsOfAuthority = true }, $"good.pem is not usable: the certificate CN=good is not signed by an authority in {good.AuthorityFile}");
    }

    [Fact]
    public void Refresh_AfterFilesChanged_ReplacesCurrentOnce()
    {
        using var authority = CertificateFolder.Authority();
        var files = Open(_folder.Issue(authority, "node", "n"));
        var before = files.Current;
        Assert.False(files.Refresh());
        Assert.Same(before, files.Current);
        _folder.Write("node", authority.Issue("renewed", ["n"], CertificateFolder.Now, CertificateFolder.Now.AddDays(5)));
        Assert.True(files.Refresh());
        Assert.Equal("CN=renewed", files.Current.Own!.Subject);
        Assert.False(files.Refresh());
    }

    /// <summary>Kubernetes mounts a secret as links into a directory that is itself a link, and replaces that link.</summary>
    [Fact]
    public void Refresh_DirectoryLinkReplaced_FindsTheNewFiles()
    {
        using var authority = CertificateFolder.Authority();
        foreach (var version in (string[])["first", "second"])
        {
            Directory.CreateDirectory(_folder.PathOf(version));
            var issued = authority.Issue(version, ["n"], CertificateFolder.Now, CertificateFolder.Now.AddDays(5));
            File.WriteAllText(Path.Combine(_folder.PathOf(version), "tls.crt"), issued.CertificatePem);
            File.WriteAllText(Path.Combine(_folder.PathOf(version), "tls.key"), issued.KeyPem);
        }
        var link = Directory.CreateSymbolicLink(_folder.PathOf("..data"), _folder.PathOf("first"));
        File.CreateSymbolicLink(_folder.PathOf("tls.crt"), Path.Combine("..data", "tls.crt"));
        File.CreateSymbolicLink(_folder.PathOf("tls.key"), Path.Combine("..data", "tls.key"));
        var files = Open(new TlsFiles { CertificateFile = _folder.PathOf("tls.crt"), KeyFile = _folder.PathOf("tls.key") });
        Assert.Equal("CN=first", files.Current.Own!.Subject);
        link.Delete();
        Directory.CreateSymbolicLink(_folder.PathOf("..data"), _folder.PathOf("second"));
        Assert.True(files.Refresh());
        Assert.Equal("CN=second", files.Current.Own!.Subject);
    }

    [Fact]
    public void Refresh_WithANewCertificateAndTheOldKey_KeepsTheFormerCredentials()
    {
        using var authority = CertificateFolder.Authority();
        var files = Open(_folder.Issue(authority, "node", "n"));
        var before = files.Current;
        var renewed = authority.Issue("renewed", ["n"], CertificateFolder.Now, CertificateFolder.Now.AddDays(5));
        _folder.Write("node.pem", renewed.CertificatePem);
        Assert.False(files.Refresh());
        Assert.Same(before, files.Current);
        Assert.Contains("it is not the key of the certificate", files.Failure, StringComparison.Ordinal);
        _folder.Write("node-key.pem", renewed.KeyPem);
        Assert.True(files.Refresh());
        Assert.Null(files.Failure);
    }

    [Fact]
    public void Fresh_WithinSeconds_DoesNotReadTheFilesAgain()
    {
        var time = new ManualTime();
        using var authority = CertificateFolder.Authority(now: time.GetUtcNow());
        var files = new CredentialFiles(_folder.Issue(authority, "node", time.GetUtcNow(), time.GetUtcNow().AddDays(5), "n"), time);
        _folder.Write("node", authority.Issue("renewed", ["n"], time.GetUtcNow(), time.GetUtcNow().AddDays(5)));
        Assert.Equal("CN=node", files.Fresh().Own!.Subject);
        time.Advance(TimeSpan.FromSeconds(3));
        Assert.Equal("CN=renewed", files.Fresh().Own!.Subject);
    }

    private static CredentialFiles Open(TlsFiles files) => new(files, TimeProvider.System);

    private static void Refused(TlsFiles files, string line)
    {
        var message = Assert.Throws<UnusableFileException>(() => Open(files)).Message;
        Assert.Contains(line, message, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', message);
    }
}
