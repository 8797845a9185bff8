using System.Collections.Concurrent;
using KvCluster.Client;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Options;

namespace KvCluster.Tests.Client;

/// <summary>
/// Clients as services of a program: their options come from configuration, connection strings and code, are validated at its start, and the clients end with
/// the services.
/// </summary>
public sealed class ServiceRegistrationTests
{
    [Fact]
    public async Task Client_OfAConnectionString_ReachesItsCluster()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var builder = BuilderWith(("ConnectionStrings:kv", $"{cluster.Endpoint};Timeout={Eventually.Limit}"));
        builder.Services.AddKvCluster();
        using var host = builder.Build();
        await host.StartAsync();
        await host.Services.GetRequiredService<KvClient>().PutAsync("a", "1");
        Assert.Equal(1, cluster.Applied["a"]);
        Assert.Same(host.Services.GetRequiredService<KvClient>(), host.Services.GetRequiredService<KvClient>());
    }

    [Fact]
    public async Task Clients_WithNames_ReachTheirOwnClusters()
    {
        await using var orders = await FakeCluster.StartAsync(1);
        await using var audit = await FakeCluster.StartAsync(1);
        await using var stock = await FakeCluster.StartAsync(1);
        var builder = BuilderWith(
            ("Orders:Endpoints:0", orders.Endpoint), ("Orders:Timeout", $"{Eventually.Limit}"),
            ("ConnectionStrings:stock", $"Endpoints={stock.Endpoint};Timeout={Eventually.Limit}"));
        builder.Services.AddKvCluster("orders", builder.Configuration.GetSection("Orders"));
        builder.Services.AddKvCluster("audit", options =>
        {
            options.Endpoints = [audit.Endpoint];
            options.Timeout = Eventually.Limit;
        });
        builder.Services.AddKvCluster("stock");
        builder.Services.AddSingleton<Shop>();
        using var host = builder.Build();
        await host.StartAsync();
        var shop = host.Services.GetRequiredService<Shop>();
        await shop.Orders.PutAsync("order", "1");
        await shop.Audit.PutAsync("audited", "1");
        await host.Services.GetRequiredKeyedService<KvClient>("stock").PutAsync("stocked", "1");
        Assert.Equal("order", Assert.Single(orders.Applied.Keys));
        Assert.Equal("audited", Assert.Single(audit.Applied.Keys));
        Assert.Equal("stocked", Assert.Single(stock.Applied.Keys));
        Assert.Null(host.Services.GetService<KvClient>());
    }

    [Fact]
    public async Task Interface_OfAClient_IsTheClient_UnlessTheProgramHasAnotherOne()
    {
        await using var other = new KvClient("http://127.0.0.1:2");
        var builder = BuilderWith();
        builder.Services.AddKvCluster(static options => options.Endpoints = ["http://127.0.0.1:1"]);
        builder.Services.AddKvCluster("orders", static options => options.Endpoints = ["http://127.0.0.1:1"]);
        builder.Services.AddKeyedSingleton<IKvClient>("audit", other);
        builder.Services.AddKvCluster("audit", static options => options.Endpoints = ["http://127.0.0.1:1"]);
        using var host = builder.Build();
        Assert.Same(host.Services.GetRequiredService<KvClient>(), host.Services.GetRequiredService<IKvClient>());
        Assert.Same(host.Services.GetRequiredKeyedService<KvClient>("orders"), host.Services.GetRequiredKeyedService<IKvClient>("orders"));
        Assert.Same(other, host.Services.GetRequiredKeyedService<IKvClient>("audit"));
    }

    /// <summary>A binder ignored the name that is spelled wrong, and told of the first mistake only.</summary>
    [Fact]
    public async Task Start_WithInvalidOptions_FailsWithALineForEachMistake()
    {
        var builder = BuilderWith(
            ("Kv:Endpoints:0", "http://kv-0:7400"), ("Kv:Endpoints:1", "kv-1:7400"), ("Kv:Endpoint", "http://kv:7400"), ("Kv:Timeout", "10"),
            ("Kv:CallsInFlightMax", "0"), ("Kv:Tls:KeyFile", "my.key"));
        builder.Services.AddKvCluster("orders", builder.Configuration.GetSection("Kv"));
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => host.StartAsync());
        Assert.Equal(
            [
                "The options of the KvCluster client 'orders' are invalid:",
                $"  Kv:Endpoint: there is no setting 'Endpoint'. There are {string.Join(", ", ClientSettings.Names)}.",
                "  Kv:Timeout: '10' is not a time like 00:00:10.",
                "  Endpoints: 'kv-1:7400' is not an address like http://host:port.",
                "  CallsInFlightMax is 0; it must be from 1 to 65536.",
                "  Tls.KeyFile requires CertificateFile, which is not set.",
            ],
            failure.Message.Split(Environment.NewLine));
    }

    /// <summary>The name of the section was spelled wrong, and the client looked for its cluster at the default address without a word.</summary>
    [Theory]
    [InlineData("Kw:Endpoints", "http://kv:7400")]
    [InlineData("Kv:Tls:KeyFile", null)]
    [InlineData("Kv", "http://kv:7400")]
    public async Task Start_WithASectionWithoutSettings_NamesItAndWhatItLacks(string setting, string? value)
    {
        var builder = BuilderWith((setting, value!));
        builder.Services.AddKvCluster(builder.Configuration.GetSection("Kv"));
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => host.StartAsync());
        Assert.Equal(
            [
                "The options of the KvCluster client are invalid:",
                "  The section Kv is missing or empty, and nothing else sets the endpoints. Set Kv:Endpoints.",
            ],
            failure.Message.Split(Environment.NewLine));
    }

    /// <summary>A section is for what differs from the defaults where a connection string or code has the address.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Start_WithASectionWithoutSettings_AndAnAddressElsewhere_Succeeds(bool isConnectionString)
    {
        var builder = BuilderWith((isConnectionString ? "ConnectionStrings:kv" : "Other", "http://a:1"));
        builder.Services.AddKvCluster(builder.Configuration.GetSection("Kv"));
        if (!isConnectionString)
            builder.Services.Configure<KvClientOptions>(static options => options.Endpoints = ["http://a:1"]);
        using var host = builder.Build();
        await host.StartAsync();
        Assert.Equal((IEnumerable<string>)["http://a:1"], host.Services.GetRequiredService<IOptionsMonitor<KvClientOptions>>().CurrentValue.Endpoints!);
    }

    [Fact]
    public async Task Start_WithACertificateFileThatIsNotThere_NamesIt()
    {
        using var directory = new TemporaryDirectory();
        var missing = Path.Combine(directory.Path, "ca.pem");
        var builder = BuilderWith(("ConnectionStrings:kv", $"https://kv:7400;Tls:AuthorityFile={missing}"));
        builder.Services.AddKvCluster();
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => host.StartAsync());
        var lines = failure.Message.Split(Environment.NewLine);
        Assert.Equal(("The options of the KvCluster client are invalid:", 2), (lines[0], lines.Length));
        Assert.Contains(missing, lines[1], StringComparison.Ordinal);
    }

    /// <summary>Programs and their cluster are often started together.</summary>
    [Fact]
    public async Task Start_WhileTheClusterIsAway_Succeeds()
    {
        var builder = BuilderWith(("ConnectionStrings:kv", "http://127.0.0.1:1;Timeout=00:00:00.300"));
        builder.Services.AddKvCluster();
        using var host = builder.Build();
        await host.StartAsync();
        await Assert.ThrowsAsync<KvUnavailableException>(() => host.Services.GetRequiredService<KvClient>().GetAsync("a").AsTask());
    }

    [Fact]
    public void Options_AreSetInTheOrderOfTheCalls_AfterTheConnectionString()
    {
        var builder = BuilderWith(
            ("ConnectionStrings:kv", "http://a:1;Timeout=00:00:01;Read=Stale"), ("Kv:Timeout", "00:00:02"), ("Kv:Endpoints", "http://b:1,http://c:1"),
            ("Kv:Endpoints:0", "http://d:1"), ("Kv:tls:serverName", "kv"));
        builder.Services.AddKvCluster(builder.Configuration.GetSection("Kv"));
        builder.Services.AddKvCluster(static options => (options.Timeout, options.Log) = (options.Timeout * 2, NullLogger.Instance));
        builder.Services.AddKvCluster();
        using var host = builder.Build();
        var options = host.Services.GetRequiredService<IOptionsMonitor<KvClientOptions>>().CurrentValue;
        Assert.Equal((TimeSpan.FromSeconds(4), KvReadMode.Stale, "kv"), (options.Timeout, options.Read, options.Tls?.ServerName));
        Assert.Equal("http://b:1 http://c:1", string.Join(' ', options.Endpoints!));
        Assert.Same(NullLogger.Instance, options.Log);
        Assert.Single(builder.Services, static service => service.ServiceType == typeof(KvClient));
    }

    /// <summary>Services that were disposed without waiting threw an exception, because the client could only be disposed by waiting.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Client_OfServicesThatAreDisposed_IsClosed_AndEndsItsSessionsIfTheyWait(bool wait)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var provider = new ServiceCollection()
            .AddKvCluster(options =>
            {
                options.Endpoints = [cluster.Endpoint];
                options.Timeout = Eventually.Limit;
            })
            .BuildServiceProvider();
        var client = provider.GetRequiredService<KvClient>();
        await client.PutAsync("a", "1");
        if (wait)
            await provider.DisposeAsync();
        else
            provider.Dispose();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.GetAsync("a").AsTask());
        Assert.Equal(wait ? 0 : 1, cluster.Results.Count);
    }

    [Fact]
    public async Task Log_OfTheServices_GetsWhatNoCallerIsTold()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var other = await FakeCluster.StartAsync(1);
        var builder = BuilderWith();
        using var log = new CategoriesLog();
        builder.Logging.AddProvider(log);
        builder.Services.AddKvCluster(options => (options.Endpoints, options.Gateway) = (new[] { cluster.Endpoint, other.Endpoint }, true));
        using var host = builder.Build();
        _ = host.Services.GetRequiredService<KvClient>();
        await Eventually.TrueAsync(
            () => log.Lines.Any(static line => line.StartsWith("KvCluster.Client: ", StringComparison.Ordinal)
                && line.EndsWith("All endpoints of a client must belong to one cluster; correct its options.", StringComparison.Ordinal)),
            "the endpoint of another cluster is logged");
    }

    private static HostApplicationBuilder BuilderWith(params (string Name, string Value)[] settings)
    {
        // Without files and variables of the environment, which tests have in common.
        var builder = Host.CreateEmptyApplicationBuilder(null);
        builder.Configuration.AddInMemoryCollection(settings.Select(static setting => new KeyValuePair<string, string?>(setting.Name, setting.Value)));
        return builder;
    }

    /// <summary>A service that uses two clusters.</summary>
    private sealed class Shop([FromKeyedServices("orders")] KvClient orders, [FromKeyedServices("audit")] KvClient audit)
    {
        public KvClient Orders { get; } = orders;

        public KvClient Audit { get; } = audit;
    }

    /// <summary>Keeps log entries as lines, each with its category.</summary>
    private sealed class CategoriesLog : ILoggerProvider
    {
        public ConcurrentQueue<string> Lines { get; } = new();

        public ILogger CreateLogger(string categoryName) => new CategoryLog(categoryName, Lines);

        public void Dispose()
        {
        }
    }

    private sealed class CategoryLog(string category, ConcurrentQueue<string> lines) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            lines.Enqueue($"{category}: {formatter(state, exception)}");
    }
}
