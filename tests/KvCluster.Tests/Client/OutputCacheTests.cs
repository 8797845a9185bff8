using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.OutputCaching;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Tests.Client;

/// <summary>Responses that ASP.NET Core caches in a cluster, for several processes of a program.</summary>
public sealed class OutputCacheTests
{
    private static int _made;

    /// <summary>Processes answer with one response until its tag is evicted, also after a node has stopped. Without a cluster each makes its own.</summary>
    [Fact]
    [Trait("Turn", "5")]
    public async Task Responses_AreThoseOfTheCluster_UntilTheirTagIsEvicted()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        var stopping = new List<Task>();
        await using (var left = await PagesAsync(nodes))
        await using (var right = await PagesAsync(nodes))
        {
            await AssertSharedAsync(left, right);
            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await AssertSharedAsync(left, right);
            await stopping[0];

            var evicted = await left.GetAsync("/page");
            await right.GetAsync("/evict");
            await Eventually.TrueAsync(async () => await left.GetAsync("/page") != evicted, "the response is made anew after the eviction");
            await AssertSharedAsync(left, right);

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await stopping[1];
            await Eventually.TrueAsync(async () => await left.GetAsync("/page") != await left.GetAsync("/page"), "each response is made anew");
        }
    }

    [Fact]
    public async Task Store_HasWhatWasSet_ForItsTime_AndAnEvictionFailsWithoutACluster()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var program = await ProgramHost.StartAsync(
            [cluster.AddressOf(1)], static builder => builder.Services.AddKvClusterOutputCache(static options => options.Timeout = Eventually.Limit));
        var store = program.Services.GetRequiredService<IOutputCacheStore>();
        await store.SetAsync("a", [1], tags: null, TimeSpan.FromHours(1), CancellationToken.None);
        await store.SetAsync("b", [2, 2], ["t"], TimeSpan.FromDays(100), CancellationToken.None);
        await store.SetAsync("c", [3], [], TimeSpan.Zero, CancellationToken.None);
        await store.SetAsync("d", new byte[8 << 20], [], TimeSpan.FromHours(1), CancellationToken.None);
        Assert.Equal((1, 2, 0, 0), (await LengthAsync("a"), await LengthAsync("b"), await LengthAsync("c"), await LengthAsync("d")));
        Assert.InRange(await LifeAsync("output/e/a"), TimeSpan.FromHours(0.9), TimeSpan.FromHours(1));
        Assert.InRange(await LifeAsync("output/e/b"), TimeSpan.FromDays(29), TimeSpan.FromDays(30));
        await store.EvictByTagAsync("t", CancellationToken.None);
        Assert.Equal((1, 0), (await LengthAsync("a"), await LengthAsync("b")));

        await using var alone = await ProgramHost.StartAsync(
            ["http://127.0.0.1:1"],
            static builder => builder.Services.AddKvClusterOutputCache(static options => options.Timeout = TimeSpan.FromMilliseconds(50)),
            timeout: TimeSpan.FromMilliseconds(400));
        store = alone.Services.GetRequiredService<IOutputCacheStore>();
        await store.SetAsync("a", [1], ["t"], TimeSpan.FromHours(1), CancellationToken.None);
        Assert.Equal(0, await LengthAsync("a"));
        await Assert.ThrowsAsync<KvUnavailableException>(() => store.EvictByTagAsync("t", CancellationToken.None).AsTask());

        async Task<int> LengthAsync(string key) => (await store.GetAsync(key, CancellationToken.None))?.Length ?? 0;

        async Task<TimeSpan> LifeAsync(KvKey key) => (await program.Client.GetAsync(key, new KvGetOptions { WithLife = true })).Life.Left!.Value;
    }

    // A response may be made anew while a leader is elected, and both processes at once.
    private static Task AssertSharedAsync(ProgramHost left, ProgramHost right) => Eventually.TrueAsync(
        async () => await left.GetAsync("/page") == await right.GetAsync("/page"), "both processes have the same response");

    private static Task<ProgramHost> PagesAsync(NodeCluster nodes) => ProgramHost.StartAsync(
        [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)],
        static builder =>
        {
            builder.Services.AddOutputCache();
            builder.Services.AddKvClusterOutputCache();
        },
        static pages =>
        {
            pages.UseOutputCache();
            // Users reach the processes of a program by one name, but each has a port of its own here, which is a part of the key.
            pages.MapGet("/page", static context => context.Response.WriteAsync($"{Interlocked.Increment(ref _made)}"))
                .CacheOutput(static policy => policy.Expire(TimeSpan.FromHours(1)).Tag("pages").SetVaryByHost(false));
            pages.MapGet("/evict", static async context =>
                await context.RequestServices.GetRequiredService<IOutputCacheStore>().EvictByTagAsync("pages", context.RequestAborted));
        });
}
