using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>Options of a client from text: a connection string, and the settings that it has in common with configuration.</summary>
public sealed class ClientSettingsTests
{
    [Fact]
    public void ConnectionString_WithAddressesAndSettings_SetsThem()
    {
        var options = KvClientOptions.FromConnectionString(
            " http://a:7400 , http://b:7400; timeout = 00:00:05;Read=session;Gateway=TRUE;ExactlyOnce=false;CallsInFlightMax=7;"
                + "Tls:AuthorityFile=/ca=1.pem;Tls:CertificateFile=/my.pem;Tls:KeyFile=/my.key;Tls:ServerName=kv;");
        Assert.Equal("http://a:7400 http://b:7400", string.Join(' ', options.Endpoints!));
        Assert.Equal(
            (TimeSpan.FromSeconds(5), KvReadMode.Session, true, false, 7),
            (options.Timeout, options.Read, options.Gateway, options.ExactlyOnce, options.CallsInFlightMax));
        var tls = Assert.IsType<KvTlsOptions>(options.Tls);
        Assert.Equal(("/ca=1.pem", "/my.pem", "/my.key", "kv"), (tls.AuthorityFile, tls.CertificateFile, tls.KeyFile, tls.ServerName));
    }

    [Fact]
    public void ConnectionString_OfAnAddressOrOfNamedSettings_LeavesTheRestAsItIs()
    {
        var address = KvClientOptions.FromConnectionString("http://a:7400");
        Assert.Equal("http://a:7400", Assert.Single(address.Endpoints!));
        Assert.Equal((TimeSpan.FromSeconds(10), KvReadMode.Leader, true), (address.Timeout, address.Read, address.ExactlyOnce));
        Assert.Equal(2, KvClientOptions.FromConnectionString("Endpoints=http://a:7400,http://b:7400").Endpoints!.Count);
        Assert.Null(KvClientOptions.FromConnectionString("Timeout=00:00:01").Endpoints);
    }

    [Fact]
    public void ConnectionString_WithMistakes_NamesThemAll()
    {
        var message = Assert.Throws<ArgumentException>(() => KvClientOptions.FromConnectionString(
            "a:7400;Timeout=10;Read=1;Gateway=yes;CallsInFlightMax=many;Endpoint=http://b:7400")).Message;
        foreach (var part in (string[])[
            "Endpoints: 'a:7400' is not an address like http://host:port.",
            "The connection string, Timeout: '10' is not a time like 00:00:10.",
            "The connection string, Read: '1' is not one of Leader, Quorum, Replica, Session, Stale.",
            "The connection string, Gateway: 'yes' is not true or false.",
            "The connection string, CallsInFlightMax: 'many' is not a number.",
            "The connection string, Endpoint: there is no setting 'Endpoint'. There are Endpoints, "])
        {
            Assert.Contains(part, message, StringComparison.Ordinal);
        }
    }

    [Theory]
    [InlineData("")]
    [InlineData(" ; ")]
    public void ConnectionString_WithoutAnything_IsAMistake(string text) => Assert.Equal(
        "The connection string is empty.", Assert.Throws<ArgumentException>(() => KvClientOptions.FromConnectionString(text)).Message);

    /// <summary>What an error message has gets into a log.</summary>
    [Theory]
    [InlineData("http://user:pass=word@a:7400")]
    [InlineData("user:pass=word@a:7400")]
    [InlineData("=pass=word@a:7400")]
    [InlineData("Endpoints=http://user:pass=word@a:7400")]
    public void ConnectionString_WithAPassword_IsRefusedWithoutNamingIt(string text)
    {
        var message = Assert.Throws<ArgumentException>(() => KvClientOptions.FromConnectionString(text)).Message;
        Assert.DoesNotContain("pass", message, StringComparison.Ordinal);
        Assert.DoesNotContain("word", message, StringComparison.Ordinal);
    }

    /// <summary>A new option is a setting, too, unless it is something that only code can make.</summary>
    [Fact]
    public void Settings_AreAllOptionsThatAreText() => Assert.Equal(
        typeof(KvClientOptions).GetProperties().Select(static property => property.Name)
            .Except([nameof(KvClientOptions.Log), nameof(KvClientOptions.Tls), nameof(KvClientOptions.Authorization)])
            .Concat(typeof(KvTlsOptions).GetProperties().Where(static property => property.PropertyType == typeof(string))
                .Select(static property => $"Tls:{property.Name}"))
            .Order(StringComparer.Ordinal),
        ClientSettings.Names.Order(StringComparer.Ordinal));

    [Fact]
    public void Readme_HasARowForEachSetting() => Assert.Equal(
        ClientSettings.Names,
        House.House.Read("client/README.md").Split("\n| setting | ")[1].Split("\n\n")[0].Split('\n').Skip(2).Select(static row => row.Split('`')[1]));

    /// <summary>Options can be set, so they could be set to something invalid after they were validated.</summary>
    [Fact]
    public async Task Options_ChangedAfterTheClientWasMade_DoNotChangeIt()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        List<string> endpoints = [cluster.Endpoint];
        var options = new KvClientOptions { Endpoints = endpoints, Timeout = Eventually.Limit };
        await using var client = new KvClient(options);
        options.Timeout = TimeSpan.Zero;
        options.Read = (KvReadMode)77;
        endpoints.Clear();
        await client.PutAsync("a", "1");
        Assert.True((await client.GetAsync("a")).Found);
    }
}
