using System.Security.Cryptography.X509Certificates;
using KvCluster.Node;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tests.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.Node;

/// <summary>The secrets that a Job of the chart creates and renews.</summary>
public sealed class SecretCertificatesTests : IAsyncLifetime
{
    private const string Authority = "store-authority";
    private const string Node = "store-node-tls";
    private const string Router = "store-router-tls";
    private const string Client = "store-client-tls";

    private static readonly DateTimeOffset Now = DateTimeOffset.UtcNow;
    private static readonly string[] Wanted = [$"{Node}=*.store.kvcluster,10.0.0.1,localhost", $"{Router}=kv.example", Client];

    private FakeKubernetes _kubernetes = null!;

    public async Task InitializeAsync() => _kubernetes = await FakeKubernetes.StartAsync();

    public async Task DisposeAsync() => await _kubernetes.DisposeAsync();

    [Fact]
    public async Task Ensure_WithNothingThere_MakesSecretsThatTheProgramsCanUse()
    {
        var lines = await EnsureAsync(Now);

        Assert.Equal([Authority, Client, Node, Router], _kubernetes.Names);
        Assert.Equal($"{Node}: created\n{Router}: created\n{Client}: created\n", lines[(lines.IndexOf('\n', StringComparison.Ordinal) + 1)..]);
        foreach (var (secret, required) in ((string, string?)[])[(Node, "node-7.store.kvcluster"), (Router, "kv.example"), (Client, null)])
        {
            var stored = _kubernetes.Secret(secret);
            Assert.Equal("kubernetes.io/tls", stored.Type);
            Assert.Equal("store", stored.Labels["app.kubernetes.io/instance"]);
            Assert.Equal(["ca.crt", "tls.crt", "tls.key"], stored.Data.Keys.Order());
            Assert.NotNull(CredentialsOf(secret, required).Own);
        }
        Assert.Equal(["*.store.kvcluster", "10.0.0.1", "localhost"], NamesOf(Node).Order(StringComparer.Ordinal));
        Assert.Empty(NamesOf(Client));
    }

    [Fact]
    public async Task Ensure_Again_ChangesNothing()
    {
        await EnsureAsync(Now);
        var (before, calls) = (Contents(), _kubernetes.Calls.Count);

        var lines = await EnsureAsync(Now.AddDays(1));

        Assert.Equal(before, Contents());
        Assert.All(_kubernetes.Calls.Skip(calls), call => Assert.StartsWith("GET ", call, StringComparison.Ordinal));
        Assert.Equal(Wanted.Length, lines.Split(": kept, valid until ").Length - 1);
    }

    /// <summary>A Job is repeated after a failure, and programs with certificates of two authorities could not talk to each other.</summary>
    [Fact]
    public async Task Ensure_AfterAFailure_GoesOnWithTheSameAuthority()
    {
        _kubernetes.Script = (method, name) => (method, name) == ("POST", Router) ? (500, "etcdserver: request timed out") : null;
        var failure = await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now));
        AssertOneLine(failure, $"refused to create the secret '{Router}' (500): etcdserver: request timed out. Run this again.");
        var before = _kubernetes.Secret(Node);
        _kubernetes.Script = (_, _) => null;

        await EnsureAsync(Now);

        Assert.Same(before, _kubernetes.Secret(Node));
        AssertOneAuthority();
    }

    /// <summary>The Job of an upgrade and the CronJob may run at the same time.</summary>
    [Fact]
    public async Task Ensure_WhileAnotherOneCreatesTheAuthority_UsesThat()
    {
        using var other = CertificateFolder.Authority("other");
        _kubernetes.Script = (method, name) =>
        {
            if ((method, name) == ("POST", Authority))
                _kubernetes.Put(Authority, ("ca.crt", other.CertificatePem), ("ca.key", other.KeyPem));
            return null;
        };

        var lines = await EnsureAsync(Now);

        Assert.DoesNotContain($"{Authority}: created", lines, StringComparison.Ordinal);
        Assert.Equal(other.CertificatePem, _kubernetes.Secret(Authority).Data["ca.crt"]);
        AssertOneAuthority();
    }

    [Fact]
    public async Task Ensure_ASecretCreatedMeanwhile_IsLookedAtAgain()
    {
        await EnsureAsync(Now);
        var (there, isFirst) = (_kubernetes.Secret(Node), true);
        _kubernetes.Delete(Node);
        _kubernetes.Script = (method, name) =>
        {
            if ((method, name) == ("POST", Node) && isFirst)
            {
                isFirst = false;
                _kubernetes.Put(Node, [.. there.Data.Select(one => (one.Key, one.Value))]);
            }
            return null;
        };

        await EnsureAsync(Now);

        Assert.Equal(there.Data, _kubernetes.Secret(Node).Data);
    }

    [Theory]
    [InlineData(264, false)]
    [InlineData(265, true)]
    public async Task Ensure_WithAThirdOfItsLifeLeft_RenewsACertificate(int days, bool isRenewed)
    {
        await EnsureAsync(Now);
        var before = Contents();

        var lines = await EnsureAsync(Now.AddDays(days));

        Assert.Equal(isRenewed, lines.Contains($"{Node}: renewed, because it expires at ", StringComparison.Ordinal));
        Assert.Equal(isRenewed, before != Contents());
        AssertOneAuthority();
        if (isRenewed)
            Assert.InRange((CertificateOf(Node).NotAfter.ToUniversalTime() - Now.AddDays(days)).TotalDays, 396, 398);
    }

    /// <summary>Nodes that are added have names that a certificate of the first ones lacks, unless that has a star.</summary>
    [Theory]
    [InlineData("*.store.kvcluster,kv-1", "*.store.kvcluster,kv-1,kv-2")]
    [InlineData("node-1.store.kvcluster", "node-1.store.kvcluster,node-2.store.kvcluster")]
    [InlineData("kv,10.0.0.1", "kv")]
    public async Task Ensure_WithOtherNames_RenewsThatCertificateOnly(string before, string after)
    {
        await EnsureAsync(Now, $"{Node}={before}", Client);
        var client = _kubernetes.Secret(Client);

        var lines = await EnsureAsync(Now, $"{Node}={after}", Client);

        Assert.Contains($"{Node}: renewed, because it names ", lines, StringComparison.Ordinal);
        Assert.Equal(after.Split(',').Order(), NamesOf(Node).Order());
        Assert.Same(client, _kubernetes.Secret(Client));
        AssertOneAuthority();
    }

    [Fact]
    public async Task Ensure_ASecretWithoutItsKey_IsRenewed()
    {
        await EnsureAsync(Now);
        _kubernetes.Put(Node, ("tls.crt", _kubernetes.Secret(Node).Data["tls.crt"]), ("tls.key", _kubernetes.Secret(Router).Data["tls.key"]), ("mine", "kept"));

        var lines = await EnsureAsync(Now);

        Assert.Contains($"{Node}: renewed, because its key is missing or another one", lines, StringComparison.Ordinal);
        Assert.Equal("kept", _kubernetes.Secret(Node).Data["mine"]);
        Assert.NotNull(CredentialsOf(Node, null).Own);
    }

    [Fact]
    public async Task Ensure_ASecretWithoutData_IsFilled()
    {
        _kubernetes.Put(Node);

        await EnsureAsync(Now);

        Assert.NotNull(CredentialsOf(Node, "node-1.store.kvcluster").Own);
    }

    [Fact]
    public async Task Ensure_ASecretThatChangesMeanwhile_IsReadAgain()
    {
        await EnsureAsync(Now);
        var conflicts = 0;
        _kubernetes.Script = (method, name) =>
        {
            if ((method, name) == ("PATCH", Node) && conflicts++ < 2)
                _kubernetes.Put(Node, [.. _kubernetes.Secret(Node).Data.Select(one => (one.Key, one.Value)), ($"by-others-{conflicts}", "x")]);
            return null;
        };

        await EnsureAsync(Now.AddDays(300));

        Assert.Equal(3, conflicts);
        Assert.Equal("x", _kubernetes.Secret(Node).Data["by-others-2"]);
        Assert.True(CertificateOf(Node).NotAfter > Now.AddDays(600));
    }

    [Fact]
    public async Task Ensure_ASecretThatAlwaysChanges_SaysSoAndEnds()
    {
        await EnsureAsync(Now);
        _kubernetes.Script = (method, _) => method == "PATCH" ? (409, "the object has been modified") : null;

        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now.AddDays(300))), $"The secret '{Node}' was changed by others 5 times while it "
            + "was to be written; this did not change it.");
    }

    /// <summary>cert-manager may have made it, or the authority's secret was lost. The programs that run would not trust another authority.</summary>
    [Fact]
    public async Task Ensure_ACertificateOfAnotherAuthority_IsNeverReplaced()
    {
        using var other = CertificateFolder.Authority("other");
        var foreign = other.Issue("router", ["kv.example"], Now.AddDays(-1), Now.AddDays(30));
        _kubernetes.Put(Router, ("ca.crt", other.CertificatePem), ("tls.crt", foreign.CertificatePem), ("tls.key", foreign.KeyPem));
        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now)), $"The secret '{Router}' has a certificate, but there is no secret "
            + $"'{Authority}' with its authority; nothing was changed.");
        Assert.Equal([Router], _kubernetes.Names);

        _kubernetes.Delete(Router);
        await EnsureAsync(Now);
        _kubernetes.Put(Router, ("ca.crt", other.CertificatePem), ("tls.crt", foreign.CertificatePem), ("tls.key", foreign.KeyPem));
        var before = Contents();

        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now.AddDays(300))), "signed by CN=other, which is none of the authorities in "
            + $"'{Authority}'; no certificate was changed.");
        Assert.Equal(before, Contents());
    }

    /// <summary>Each step is one change of the authority's secret and one run: trust both, use the new one, forget the old one.</summary>
    [Fact]
    public async Task Ensure_WithTwoAuthorities_MovesFromOneToTheOther()
    {
        await EnsureAsync(Now);
        var (old, certificate) = (_kubernetes.Secret(Authority).Data, CertificateOf(Node).Thumbprint);
        // Their names are equal, as when both were made by this command.
        using var next = new DevelopmentAuthority($"KvCluster {Authority}", Now, Now.AddYears(10));
        var both = old["ca.crt"] + next.CertificatePem;

        _kubernetes.Put(Authority, ("ca.crt", both), ("ca.key", old["ca.key"]));
        await EnsureAsync(Now);
        Assert.Equal((both, certificate), (_kubernetes.Secret(Node).Data["ca.crt"], CertificateOf(Node).Thumbprint));

        _kubernetes.Put(Authority, ("ca.crt", both), ("ca.key", next.KeyPem));
        var lines = await EnsureAsync(Now);
        Assert.Contains($"{Node}: renewed, because the key in '{Authority}' is another one", lines, StringComparison.Ordinal);
        Assert.NotNull(CredentialsOf(Node, null).Own);

        _kubernetes.Put(Authority, ("ca.crt", next.CertificatePem), ("ca.key", next.KeyPem));
        certificate = CertificateOf(Node).Thumbprint;
        await EnsureAsync(Now);
        Assert.Equal((next.CertificatePem, certificate), (_kubernetes.Secret(Node).Data["ca.crt"], CertificateOf(Node).Thumbprint));
        Assert.NotNull(CredentialsOf(Node, null).Own);
    }

    [Fact]
    public async Task Ensure_WithTheKeyOfAnotherAuthority_SaysWhatIsWrong()
    {
        await EnsureAsync(Now);
        using var other = CertificateFolder.Authority();
        var certificates = _kubernetes.Secret(Authority).Data["ca.crt"];
        foreach (var (key, why) in ((string, string)[])[(other.KeyPem, "'ca.key' is the key of none of the certificates in 'ca.crt'"),
            ("text", "cannot be used: ")])
        {
            _kubernetes.Put(Authority, ("ca.crt", certificates), ("ca.key", key));
            AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now)), why);
        }
        _kubernetes.Put(Authority, ("ca.crt", certificates));
        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now)), "it lacks 'ca.crt' or 'ca.key'");
    }

    /// <summary>No certificate outlives its authority, and an authority at its end is not used.</summary>
    [Fact]
    public async Task Ensure_WithAnAuthorityThatEnds_MakesNoCertificateBeyondThat()
    {
        using var authority = new DevelopmentAuthority("short", Now.AddDays(-300), Now.AddDays(60));
        _kubernetes.Put(Authority, ("ca.crt", authority.CertificatePem), ("ca.key", authority.KeyPem));

        await EnsureAsync(Now);

        Assert.Equal(authority.End, new DateTimeOffset(CertificateOf(Node).NotAfter));
        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now.AddDays(61))), "the authority expired at ");
    }

    [Theory]
    [InlineData("GET", Authority, "read", Authority)]
    [InlineData("POST", Authority, "create", Authority)]
    [InlineData("POST", Router, "create", Router)]
    public async Task Ensure_Forbidden_SaysWhichSecretAndWhy(string method, string name, string does, string secret)
    {
        _kubernetes.Script = (asked, about) => (asked, about) == (method, name) ? (403, "User \"system:serviceaccount:data:store\" cannot do this") : null;

        AssertOneLine(
            await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now)),
            $"refused to {does} the secret '{secret}' (403): User \"system:serviceaccount:data:store\" cannot do this. It is unchanged.");
    }

    [Fact]
    public async Task Ensure_AtAServerOfAnotherAuthority_SendsNothingToIt()
    {
        _kubernetes.TrustAnother();

        AssertOneLine(await Assert.ThrowsAsync<IOException>(() => EnsureAsync(Now)), $"gave no answer when asked to read the secret '{Authority}'");
        Assert.Empty(_kubernetes.Calls);
    }

    [Theory]
    [InlineData("Store", "'Store' is not the name of a secret")]
    [InlineData("=kv.example", "'' is not the name of a secret")]
    [InlineData("store=a/b", "'a/b' is neither a host name nor an address")]
    public void Parse_OfSomethingElse_SaysWhat(string text, string message) =>
        Assert.Contains(message, Assert.Throws<FormatException>(() => SecretCertificate.Parse(text)).Message, StringComparison.Ordinal);

    private async Task<string> EnsureAsync(DateTimeOffset now, params string[] wanted)
    {
        using var secrets = _kubernetes.Connect();
        using var output = new StringWriter { NewLine = "\n" };
        var labels = new Dictionary<string, string> { ["app.kubernetes.io/instance"] = "store" };
        SecretCertificate[] certificates = [.. (wanted.Length == 0 ? Wanted : wanted).Select(SecretCertificate.Parse)];
        await new SecretCertificates(secrets, Authority, labels, now, output).EnsureAsync(certificates, CancellationToken.None);
        return output.ToString();
    }

    private static void AssertOneLine(Exception failure, string part)
    {
        Assert.Contains(part, failure.Message, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', failure.Message);
    }

    // That all certificates are signed by the one authority that there is, which all trust.
    private void AssertOneAuthority()
    {
        foreach (var name in _kubernetes.Names.Where(name => name != Authority))
        {
            Assert.Equal(_kubernetes.Secret(Authority).Data["ca.crt"], _kubernetes.Secret(name).Data["ca.crt"]);
            using var chain = new X509Chain();
            chain.ChainPolicy.TrustMode = X509ChainTrustMode.CustomRootTrust;
            chain.ChainPolicy.RevocationMode = X509RevocationMode.NoCheck;
            chain.ChainPolicy.VerificationFlags = X509VerificationFlags.IgnoreNotTimeValid;
            chain.ChainPolicy.CustomTrustStore.ImportFromPem(_kubernetes.Secret(Authority).Data["ca.crt"]);
            Assert.True(chain.Build(CertificateOf(name)), name);
        }
    }

    private string Contents() => string.Join(
        '\n', _kubernetes.Names.SelectMany(name => _kubernetes.Secret(name).Data.OrderBy(one => one.Key).Select(one => $"{name}/{one.Key}: {one.Value}")));

    private X509Certificate2 CertificateOf(string secret) => X509Certificate2.CreateFromPem(_kubernetes.Secret(secret).Data["tls.crt"]);

    private IEnumerable<string> NamesOf(string secret) => CertificateRefusal.NamesOf(CertificateOf(secret));

    // As a node or router reads the files that the kubelet makes of a secret.
    private TlsCredentials CredentialsOf(string secret, string? required)
    {
        using var folder = new TemporaryDirectory();
        foreach (var (name, text) in _kubernetes.Secret(secret).Data)
            File.WriteAllText(Path.Combine(folder.Path, name), text);
        var files = new TlsFiles
        {
            AuthorityFile = Path.Combine(folder.Path, "ca.crt"),
            CertificateFile = Path.Combine(folder.Path, "tls.crt"),
            KeyFile = Path.Combine(folder.Path, "tls.key"),
            IsOfAuthority = true,
            RequiredName = required,
        };
        return new CredentialFiles(files, TimeProvider.System).Current;
    }
}
