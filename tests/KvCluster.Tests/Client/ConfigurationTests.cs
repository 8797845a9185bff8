using System.Collections.Concurrent;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;
using Microsoft.Extensions.Primitives;

namespace KvCluster.Tests.Client;

/// <summary>Settings of a program in a cluster, which it follows while it runs.</summary>
public sealed class ConfigurationTests
{
    [Fact]
    [Trait("Turn", "7")]
    public async Task Options_OfAProgram_FollowTheCluster_WhileNodesStop()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        string[] endpoints = [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)];
        await using var writer = new KvClient(new KvClientOptions { Endpoints = endpoints, Timeout = Eventually.Limit });
        await writer.PutAsync("config/shop/Shop/Discount", "10");
        var stopping = new List<Task>();
        await using (var program = await ProgramHost.StartAsync(
            endpoints,
            builder =>
            {
                builder.Configuration["ConnectionStrings:kv"] = $"{string.Join(',', endpoints)};Timeout={Eventually.Limit}";
                builder.Configuration.AddKvCluster(static options => (options.Prefix, options.StartTimeout) = ("config/shop/", Eventually.Limit));
                builder.Services.Configure<ShopOptions>(builder.Configuration.GetSection("Shop"));
            },
            static pages => pages.MapGet("/discount", static context => context.Response.WriteAsync(
                context.RequestServices.GetRequiredService<IOptionsMonitor<ShopOptions>>().CurrentValue.Discount))))
        {
            Assert.Equal("10", await program.GetAsync("/discount"));
            await writer.PutAsync("config/shop/Shop/Discount", "20");
            await SeesAsync(program, "20");

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await writer.PutAsync("config/shop/Shop/Discount", "30");
            await SeesAsync(program, "30");
            await stopping[0];
            await writer.DeleteAsync("config/shop/Shop/Discount");
            await SeesAsync(program, "none");
            await writer.PutAsync("config/shop/Shop/Discount", "40");
            await SeesAsync(program, "40");

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await stopping[1];
            Assert.Equal("40", await program.GetAsync("/discount"));
        }
    }

    [Fact]
    public async Task Settings_AreTheKeysBelowThePrefix_AndThoseOfOneWriteChangeTogether()
    {
        await using var node = await NodeCluster.StartAsync(1);
        await node.LeaderOfAsync(0);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [node.AddressOf(1)], Timeout = Eventually.Limit });
        await client.PutAsync("config/a/b", "1");
        await client.PutAsync("config/A/C", "2");
        await client.PutAsync("config/", "no name");
        await client.PutAsync("configuration", "elsewhere");
        await client.PutAsync("config/bytes", new byte[] { 0xff });
        var failures = new ConcurrentQueue<Exception>();
        var manager = new ConfigurationManager { ["a:b"] = "overridden", ["other"] = "kept" };
        using (manager)
        {
            manager.AddKvCluster(options =>
            {
                (options.Client, options.StartTimeout) = (client, Eventually.Limit);
                options.OnFailure = failures.Enqueue;
            });
            Assert.Equal(("1", "2", "kept", null), (manager["a:b"], manager["A:c"], manager["other"], manager["bytes"]));
            Assert.Equal(["b", "C"], manager.GetSection("a").GetChildren().Select(static child => child.Key).Order(StringComparer.Ordinal).Reverse());
            Assert.IsType<FormatException>(Assert.Single(failures));

            // Whoever is told sees both changes of a write, and one who throws does not end it.
            var seen = new ConcurrentQueue<(string?, string?)>();
            IConfiguration configuration = manager;
            using var told = ChangeToken.OnChange(configuration.GetReloadToken, () => seen.Enqueue((configuration["a:b"], configuration["a:c"])));
            using var throws = ChangeToken.OnChange(configuration.GetReloadToken, static () => throw new InvalidDataException("The settings are wrong."));
            await client.WriteAsync(new KvWrite().Put("config/a/b", "3").Put("config/A/C", "4"));
            await Eventually.TrueAsync(() => !seen.IsEmpty, "the write is seen");
            Assert.Equal(("3", "4"), seen.First());
            await Eventually.TrueAsync(() => failures.Count == 2, "the failure is told");
            await client.DeleteRangeAsync(new KvRange { Prefix = "config/a/" });
            await Eventually.TrueAsync(() => manager["a:b"] == "overridden", "the setting is that of the other source");
            Assert.Equal("4", manager["a:c"]);
        }
        // It was not the provider's.
        Assert.True((await client.GetAsync("configuration")).Found);
    }

    [Fact]
    public void Start_WithoutTheCluster_FailsUnlessTheSettingsAreOptional()
    {
        using var manager = new ConfigurationManager();
        var failure = Assert.Throws<InvalidOperationException>(() => manager.AddKvCluster(static options =>
            (options.ConnectionString, options.StartTimeout) = ("http://127.0.0.1:1;Timeout=00:00:00.100", TimeSpan.FromMilliseconds(300))));
        Assert.StartsWith("The configuration below 'config/' was not read from the cluster within ", failure.Message, StringComparison.Ordinal);

        using var optional = new ConfigurationManager { ["a"] = "1" };
        optional.AddKvCluster(static options => (options.ConnectionString, options.StartTimeout, options.Optional)
            = ("http://127.0.0.1:1;Timeout=00:00:00.100", TimeSpan.FromMilliseconds(50), true));
        Assert.Equal("1", optional["a"]);
        Assert.Throws<ArgumentException>(() => optional.AddKvCluster(static options => options.Prefix = ""));
    }

    private static Task SeesAsync(ProgramHost program, string discount) =>
        Eventually.TrueAsync(async () => await program.GetAsync("/discount") == discount, $"the program shows {discount}");

    private sealed class ShopOptions
    {
        public string Discount { get; set; } = "none";
    }
}
