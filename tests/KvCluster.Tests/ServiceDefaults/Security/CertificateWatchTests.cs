using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>When operators are warned about certificates, and how.</summary>
public sealed class CertificateWatchTests : IDisposable
{
    private readonly CertificateFolder _folder = new();
    private readonly ManualTime _time = new();
    private readonly LinesLog _log = new();
    private readonly DevelopmentAuthority _authority;

    public CertificateWatchTests() => _authority = CertificateFolder.Authority(now: _time.GetUtcNow());

    private DateTimeOffset Now => _time.GetUtcNow();

    public void Dispose()
    {
        _authority.Dispose();
        _folder.Dispose();
    }

    [Fact]
    public async Task CertificateExpiringTomorrow_WarnsAtStartAtExpiryAndDaily()
    {
        await using var watch = Watch(Now.AddHours(23));
        Assert.StartsWith($"Warning: The certificate in {_folder.PathOf("node.pem")} expires at ", Assert.Single(_log.Lines), StringComparison.Ordinal);
        Pass(TimeSpan.FromHours(22));
        Assert.Single(_log.Lines);
        Pass(TimeSpan.FromHours(2));
        Assert.Equal(2, _log.Lines.Length);
        Assert.StartsWith($"Error: The certificate in {_folder.PathOf("node.pem")} expired at ", _log.Lines[1], StringComparison.Ordinal);
        Pass(TimeSpan.FromHours(48));
        Assert.Equal(4, _log.Lines.Length);
        _folder.Write("node", _authority.Issue("node", ["n"], Now, Now.AddDays(90)));
        Pass(TimeSpan.FromHours(72));
        Assert.Equal(4, _log.Lines.Length);
    }

    [Fact]
    public async Task CertificateExpiringInFiveDays_WarnsDaily()
    {
        await using var watch = Watch(Now.AddDays(5));
        Pass(TimeSpan.FromDays(3.5));
        Assert.Equal(4, _log.Lines.Length);
    }

    [Fact]
    public async Task CertificateExpiringInAMonth_DoesNotWarn()
    {
        await using var watch = Watch(Now.AddDays(30));
        Pass(TimeSpan.FromDays(2));
        Assert.Empty(_log.Lines);
    }

    [Fact]
    public async Task InvalidChange_ThatPersists_WarnsOnce()
    {
        await using var watch = Watch(Now.AddDays(60));
        _folder.Write("node.pem", _authority.Issue("renewed", ["n"], Now, Now.AddDays(90)).CertificatePem);
        _time.Advance(CertificateWatch.Interval);
        Assert.Empty(_log.Lines);
        Pass(TimeSpan.FromHours(2));
        Assert.Contains("it is not the key of the certificate", Assert.Single(_log.Lines), StringComparison.Ordinal);
        File.Delete(_folder.PathOf("node.pem"));
        Pass(TimeSpan.FromHours(2));
        Assert.Equal(2, _log.Lines.Length);
    }

    private CertificateWatch Watch(DateTimeOffset until) => new(new CredentialFiles(_folder.Issue(_authority, "node", Now, until, "n"), _time), _log, _time);

    // In steps of an hour, the interval of the watch.
    private void Pass(TimeSpan time)
    {
        for (var passed = TimeSpan.Zero; passed < time; passed += TimeSpan.FromHours(1))
            _time.Advance(TimeSpan.FromHours(1));
    }
}
