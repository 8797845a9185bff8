using System.Diagnostics;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using KvCluster.Client;
using KvCluster.Extensions.DistributedLock;
using KvCluster.Tests.Client;
using KvCluster.Tests.Node;
using Medallion.Threading;
using Microsoft.AspNetCore.Authentication.Cookies;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.DataProtection;
using Microsoft.AspNetCore.OutputCaching;
using Microsoft.Extensions.Caching.Distributed;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Diagnostics.HealthChecks;
using Microsoft.Extensions.Options;
using OpenTelemetry.Metrics;
using OpenTelemetry.Trace;

namespace KvCluster.Tests.House;

/// <summary>The C# of the pages of the packages for hosts, in programs of ASP.NET Core. <see cref="DocumentCodeTests"/> compares it with the pages.</summary>
[Trait("Turn", "2")]
public sealed class HostDocumentCodeTests
{
    private const string Elsewhere = "http://127.0.0.1:1";

    private static int _listed;

    [Fact]
    public async Task AspNetCore_DoesWhatItSays()
    {
        await using var cluster = await ClusterAsync();
        await using var program = await ProgramHost.StartAsync(
            [cluster.AddressOf(1)],
            builder =>
            {
                // Otherwise the keys are in a file of the user's.
                builder.Services.AddDataProtection().PersistKeysToKvCluster();
                builder.Services.AddKvCluster();
                builder.Services.AddOutputCache(); // of ASP.NET Core
                builder.Services.AddKvClusterOutputCache();
                builder.Services.AddAuthentication(CookieAuthenticationDefaults.AuthenticationScheme).AddCookie(); // of ASP.NET Core
                builder.Services.AddKvClusterTicketStore();
            },
            app =>
            {
                app.UseOutputCache();
                app.MapGet("/orders", ListOrders).CacheOutput(policy => policy.Expire(TimeSpan.FromMinutes(1)).Tag("orders"));
                app.MapPost("/orders", async (IOutputCacheStore cache, CancellationToken stop) => await cache.EvictByTagAsync("orders", stop));
            });
        await Eventually.TrueAsync(async () => await program.GetAsync("/orders") == await program.GetAsync("/orders"), "the response is cached");
        var cached = await program.GetAsync("/orders");
        using var evicted = await program.Http.PostAsync(new Uri("/orders", UriKind.Relative), content: null);
        Assert.True(evicted.IsSuccessStatusCode);
        await Eventually.TrueAsync(async () => await program.GetAsync("/orders") != cached, "the response is made anew");

        var cookies = program.Services.GetRequiredService<IOptionsMonitor<CookieAuthenticationOptions>>();
        Assert.NotNull(cookies.Get(CookieAuthenticationDefaults.AuthenticationScheme).SessionStore);

        static string ListOrders() => $"two pears, for the {Interlocked.Increment(ref _listed)}. time";
    }

    [Fact]
    public async Task Caching_DoesWhatItSays()
    {
        await using var cluster = await ClusterAsync();
        await using var program = await ProgramHost.StartAsync([cluster.AddressOf(1)], builder =>
        {
            builder.Services.AddKvCluster();
            builder.Services.AddKvClusterDistributedCache(); // IDistributedCache, for sessions of ASP.NET Core and whatever else takes one
            builder.Services.AddKvClusterHybridCache(); // HybridCache
        });
        var (hybrid, cache) = (program.Services.GetRequiredService<HybridCache>(), program.Services.GetRequiredService<IDistributedCache>());
        const int id = 17;
        var order = await hybrid.GetOrCreateAsync($"orders/{id}", stop => LoadAsync(id, stop), tags: ["orders"]);
        await hybrid.RemoveByTagAsync("orders"); // in every process
        var page = await cache.GetStringAsync("pages/home");
        await cache.SetStringAsync("pages/home", "<h1>…", new DistributedCacheEntryOptions { SlidingExpiration = TimeSpan.FromMinutes(20) });
        Assert.Equal("order 17", order);
        Assert.Null(page);
        // On a busy machine a set may be left out.
        await Eventually.TrueAsync(
            async () =>
            {
                await cache.SetStringAsync("pages/home", "<h1>…");
                return await cache.GetStringAsync("pages/home") == "<h1>…";
            },
            "the page is cached");

        static ValueTask<string> LoadAsync(int number, CancellationToken cancellation) => cancellation.IsCancellationRequested
            ? ValueTask.FromCanceled<string>(cancellation) : ValueTask.FromResult($"order {number}");
    }

    [Fact]
    public async Task Configuration_DoesWhatItSays()
    {
        await using var cluster = await ClusterAsync();
        await using var program = await ProgramHost.StartAsync([cluster.AddressOf(1)], builder =>
        {
            builder.Configuration["ConnectionStrings:kv"] = $"{cluster.AddressOf(1)};Timeout={Eventually.Limit}";
            builder.Configuration.AddKvCluster(options => options.Prefix = "config/shop/");
            builder.Services.Configure<ShopOptions>(builder.Configuration.GetSection("Shop"));
            // An IOptionsMonitor<ShopOptions> has the new value moments after: kv put config/shop/Shop/Discount 20
        });
        await program.Client.PutAsync("config/shop/Shop/Discount", "20");
        var options = program.Services.GetRequiredService<IOptionsMonitor<ShopOptions>>();
        await Eventually.TrueAsync(() => options.CurrentValue.Discount == 20, "the program has the new value");
    }

    [Fact]
    public async Task DataProtection_DoesWhatItSays()
    {
        using var key = RSA.Create(2048);
        using var certificate = new CertificateRequest("CN=shop", key, HashAlgorithmName.SHA256, RSASignaturePadding.Pkcs1)
            .CreateSelfSigned(DateTimeOffset.UtcNow.AddDays(-1), DateTimeOffset.UtcNow.AddDays(1));
        await using var cluster = await ClusterAsync();
        await using var left = await ProgramAsync();
        await using var right = await ProgramAsync();
        var cookie = left.Services.GetDataProtector("cookies").Protect("text");
        Assert.Equal("text", right.Services.GetDataProtector("cookies").Unprotect(cookie));
        var stored = await left.Client.ScanAsync(new KvScan { Prefix = "dataprotection/e/" }).ToListAsync();
        Assert.NotEmpty(stored);
        Assert.All(stored, static entry => Assert.DoesNotContain("<masterKey", entry.Value.ToUtf8String(), StringComparison.Ordinal));

        Task<ProgramHost> ProgramAsync() => ProgramHost.StartAsync([cluster.AddressOf(1)], builder =>
        {
            builder.Services.AddKvCluster();
            builder.Services.AddDataProtection()
                .SetApplicationName("shop") // the same in all processes
                .ProtectKeysWithCertificate(certificate) // otherwise whoever reads the cluster reads the keys
                .PersistKeysToKvCluster();
        });
    }

    [Fact]
    public async Task DependencyInjection_DoesWhatItSays()
    {
        await using var first = await FakeCluster.StartAsync(1);
        await using var second = await FakeCluster.StartAsync(1);
        await using var program = await ProgramHost.StartAsync([first.Endpoint], builder =>
        {
            (builder.Configuration["Orders:Endpoints"], builder.Configuration["Orders:Timeout"]) = (second.Endpoint, $"{Eventually.Limit}");
            builder.Services.AddKvCluster(); // the connection string "kv"
            builder.Services.AddKvCluster("orders", builder.Configuration.GetSection("Orders"));
            builder.Services.AddKvCluster("audit", options => options.Endpoints = ["http://audit:7400"]);

            builder.Services.AddSingleton<Shop>();
        });
        await program.Client.PutAsync("pear", "green");
        await program.Services.GetRequiredService<Shop>().OrderAsync("pear");
        Assert.Equal(("pear", "last"), (Assert.Single(first.Applied.Keys), Assert.Single(second.Applied.Keys)));
        Assert.NotNull(program.Services.GetRequiredKeyedService<IKvClient>("audit"));
    }

    [Fact]
    public async Task DistributedLock_DoesWhatItSays()
    {
        await using var cluster = await ClusterAsync();
        await using var program = await ProgramHost.StartAsync([cluster.AddressOf(1)], builder =>
        {
            builder.Services.AddKvCluster();
            builder.Services.AddSingleton<IDistributedLockProvider>(
                services => new KvDistributedLockProvider(services.GetRequiredService<KvClient>(), "locks/"));

            builder.Services.AddSingleton<Billing>();
        });
        await program.Services.GetRequiredService<Billing>().RunAsync();
        var (locks, store) = (program.Services.GetRequiredService<IDistributedLockProvider>(), program.Client);

        var held = (KvDistributedLockHandle)await locks.AcquireLockAsync("billing");
        await store.WriteAsync(new KvWrite().If(held.Lock.Held).Put("locks/billing-last", "2026-11")); // a key of the same shard
        await held.DisposeAsync();
        Assert.Equal("2026-11", (await store.GetAsync("locks/billing-last")).Value.ToUtf8String());
    }

    [Fact]
    public async Task HealthChecks_DoWhatTheySay()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var program = await ProgramHost.StartAsync([cluster.Endpoint], builder =>
        {
            builder.Configuration["ConnectionStrings:audit"] = $"{Elsewhere};Timeout=00:00:00.300";
            builder.Services.AddKvCluster(builder.Configuration.GetSection("Kv"));
            builder.Services.AddKvCluster("audit");
            builder.Services.AddHealthChecks()
                .AddKvCluster() // "kvcluster"
                .AddKvCluster("audit", failureStatus: HealthStatus.Degraded, timeout: TimeSpan.FromSeconds(2)); // "kvcluster-audit"
        });
        var report = await program.Services.GetRequiredService<HealthCheckService>().CheckHealthAsync();
        Assert.Equal(
            (HealthStatus.Healthy, HealthStatus.Degraded), (report.Entries["kvcluster"].Status, report.Entries["kvcluster-audit"].Status));
    }

    [Fact]
    public async Task OpenTelemetry_DoesWhatItSays()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var program = await ProgramHost.StartAsync([cluster.Endpoint], builder =>
        {
            builder.Services.AddOpenTelemetry()
                .WithTracing(traces => traces.AddKvCluster())
                .WithMetrics(metrics => metrics.AddKvCluster());
        });
        AssertObserved();
    }

    /// <summary>All of it together, as the library's own page has it.</summary>
    [Fact]
    public async Task Client_InAHost_DoesWhatItSays()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var program = await ProgramHost.StartAsync([cluster.Endpoint], builder =>
        {
            builder.Configuration["Kv:CallsInFlightMax"] = "64";
            builder.Services.AddKvCluster(builder.Configuration.GetSection("Kv")); // KvClient is a service, also as IKvClient
            builder.Services.AddKvCluster("audit", options => options.Endpoints = ["http://audit:7400"]); // and so is [FromKeyedServices("audit")] IKvClient
            builder.Services.AddHealthChecks().AddKvCluster();
            builder.Services.AddOpenTelemetry().WithTracing(traces => traces.AddKvCluster()).WithMetrics(metrics => metrics.AddKvCluster());
        });
        await program.Services.GetRequiredService<IKvClient>().PutAsync("a", "1");
        Assert.Equal(64, program.Services.GetRequiredService<IOptionsMonitor<KvClientOptions>>().CurrentValue.CallsInFlightMax);
        Assert.NotNull(program.Services.GetRequiredKeyedService<IKvClient>("audit"));
        Assert.Equal(HealthStatus.Healthy, (await program.Services.GetRequiredService<HealthCheckService>().CheckHealthAsync()).Status);
        AssertObserved();
    }

    private static async Task<NodeCluster> ClusterAsync()
    {
        var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        return cluster;
    }

    // By the providers that the host has started.
    private static void AssertObserved()
    {
        using var source = new ActivitySource("KvCluster.Client");
        Assert.True(source.HasListeners());
    }

    internal sealed class ShopOptions
    {
        public int Discount { get; set; }
    }

    internal sealed class Shop(IKvClient store, [FromKeyedServices("orders")] IKvClient orders)
    {
        public async Task OrderAsync(string product) => await orders.PutAsync("last", (await store.GetAsync(product)).Value);
    }

    internal sealed class Billing(IDistributedLockProvider locks)
    {
        public async Task RunAsync()
        {
            await using var held = await locks.AcquireLockAsync("billing");
            // ...
        }
    }
}
