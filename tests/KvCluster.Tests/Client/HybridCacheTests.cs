using System.Globalization;
using System.Text;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Caching.Hybrid;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;

namespace KvCluster.Tests.Client;

/// <summary>The hybrid cache of several processes of a program, which must not show what another one has changed.</summary>
public sealed class HybridCacheTests
{
    /// <summary>Two processes show a number. What one sets, both show, also after a node has stopped. Without a cluster each makes its own.</summary>
    [Fact]
    [Trait("Turn", "4")]
    public async Task Pages_OfTwoProcesses_ShowTheSame_WhileNodesStop()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        var stopping = new List<Task>();
        await using (var left = await PagesAsync(nodes))
        await using (var right = await PagesAsync(nodes))
        {
            Assert.Equal("made", await left.GetAsync("/number"));
            Assert.Equal("made", await right.GetAsync("/number"));
            await left.GetAsync("/set/1");
            await Eventually.TrueAsync(async () => await right.GetAsync("/number") == "1", "the other process shows what was set");

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await Eventually.TrueAsync(
                async () =>
                {
                    await left.GetAsync("/set/2");
                    return await right.GetAsync("/number") == "2";
                },
                "the other process shows what was set without a node");
            await stopping[0];
            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await stopping[1];
            await Eventually.TrueAsync(
                async () => (await left.GetAsync("/number"), await right.GetAsync("/number")) == ("made", "made"), "each makes a number without a cluster");
        }
    }

    [Fact]
    public async Task Entry_InMemory_IsFoundWithoutTheCluster_UntilAnotherProcessChangesIt()
    {
        await using var node = await NodeAsync();
        await using var left = await ProgramAsync(node);
        await using var right = await ProgramAsync(node);
        var (here, there) = (CacheOf(left), CacheOf(right));
        await here.SetAsync("a", "1");
        // What comes from the cluster is another object each time.
        await Eventually.TrueAsync(async () => ReferenceEquals(await TextAsync(there, "a"), await TextAsync(there, "a")), "the entry is in memory");
        Assert.Equal("1", await TextAsync(there, "a"));
        await here.SetAsync("a", "2");
        await Eventually.TrueAsync(async () => await TextAsync(there, "a") == "2", "the change is seen");
        await Eventually.TrueAsync(async () => ReferenceEquals(await TextAsync(there, "a"), await TextAsync(there, "a")), "the entry is in memory again");
        await here.RemoveAsync("a");
        Assert.Equal("new", await TextAsync(here, "a"));
        await Eventually.TrueAsync(async () => await TextAsync(there, "a") == "new", "the remove is seen");

        // Whatever removes the keys.
        await here.SetAsync("a", "3");
        await Eventually.TrueAsync(async () => ReferenceEquals(await TextAsync(there, "a"), await TextAsync(there, "a")), "the entry is in memory once more");
        await left.Client.DeleteRangeAsync(new KvRange { Prefix = "hybrid/e/" });
        await Eventually.TrueAsync(async () => await TextAsync(there, "a") == "new", "the remove of a range is seen");

        // Flags.
        var none = new HybridCacheEntryOptions { Flags = HybridCacheEntryFlags.DisableUnderlyingData };
        Assert.Null(await here.GetOrCreateAsync<string?>("b", static _ => ValueTask.FromResult<string?>("made"), none));
        var memory = new HybridCacheEntryOptions { Flags = HybridCacheEntryFlags.DisableDistributedCache };
        await Eventually.TrueAsync(
            async () => await here.GetOrCreateAsync("b", static _ => ValueTask.FromResult("memory"), memory) == await here.GetOrCreateAsync("b", Other, memory),
            "the entry is in memory only");
        Assert.False((await left.Client.GetAsync("hybrid/e/b")).Found);
        var nowhere = new HybridCacheEntryOptions { Flags = HybridCacheEntryFlags.DisableDistributedCache, LocalCacheExpiration = TimeSpan.Zero };
        await here.SetAsync("b", "not kept", nowhere);
        Assert.Equal("other", await here.GetOrCreateAsync("b", Other, memory));

        static ValueTask<string> Other(CancellationToken cancellationToken) => ValueTask.FromResult("other");
    }

    [Fact]
    public async Task RemoveByTag_RemovesInEveryProcess_WhatWasMadeBefore()
    {
        await using var node = await NodeAsync();
        await using var left = await ProgramAsync(node);
        await using var right = await ProgramAsync(node);
        var (here, there) = (CacheOf(left), CacheOf(right));
        await here.SetAsync("red", "1", tags: ["color", "\uD800", ""]);
        await here.SetAsync("round", "1", tags: ["shape"]);
        Assert.Equal(("1", "1"), (await TextAsync(there, "red"), await TextAsync(there, "round")));
        await there.RemoveByTagAsync("color");
        Assert.Equal(("new", "1"), (await TextAsync(there, "red", "color"), await TextAsync(there, "round")));
        await Eventually.TrueAsync(async () => await TextAsync(here, "red", "color") == "new", "the entry is gone in the other process");
        Assert.Equal("1", await TextAsync(here, "round"));
        await here.RemoveByTagAsync(["*"]);
        Assert.Equal("new", await TextAsync(here, "round"));

        // A value that was made of what is wrong now.
        var made = await here.GetOrCreateAsync(
            "slow",
            async stop =>
            {
                await here.RemoveByTagAsync("color", stop);
                return "old";
            },
            tags: ["color"]);
        Assert.Equal(("old", "new"), (made, await TextAsync(here, "slow", "color")));

        var life = (await left.Client.GetAsync("hybrid/t/color", new KvGetOptions { WithLife = true })).Life.Left;
        Assert.InRange(life!.Value, TimeSpan.FromDays(30.9), TimeSpan.FromDays(31));
    }

    /// <summary>What a slow factory has made of old data replaced what was set meanwhile, in all processes until it expired.</summary>
    [Fact]
    public async Task Value_ThatIsMadeSlowly_ReplacesNoNewerOne_AndIsNotSharedAfterARemove()
    {
        await using var node = await NodeAsync();
        await using var left = await ProgramAsync(node);
        await using var right = await ProgramAsync(node);
        var (here, there) = (CacheOf(left), CacheOf(right));
        var made = await here.GetOrCreateAsync(
            "a",
            async stop =>
            {
                await there.SetAsync("a", "2", cancellationToken: stop);
                return "1";
            });
        Assert.Equal(("1", "2"), (made, await TextAsync(here, "a")));

        var (begun, proceed) = (new TaskCompletionSource(), new TaskCompletionSource());
        var slow = here.GetOrCreateAsync(
            "b",
            async stop =>
            {
                begun.SetResult();
                await proceed.Task.WaitAsync(stop);
                return "old";
            }).AsTask();
        await begun.Task.WaitAsync(Eventually.Limit);
        await here.RemoveAsync("b");
        Assert.Equal("new", await TextAsync(here, "b").AsTask().WaitAsync(Eventually.Limit));
        proceed.SetResult();
        Assert.Equal("old", await slow);
        Assert.Equal("new", await TextAsync(here, "b"));
    }

    [Fact]
    public async Task Callers_OfOneKey_ShareACallOfTheFactory_AndNoObject()
    {
        await using var node = await NodeAsync();
        await using var program = await ProgramAsync(node);
        var (cache, calls, proceed) = (CacheOf(program), 0, new TaskCompletionSource());
        using var impatient = new CancellationTokenSource();
        var tasks = Enumerable.Range(0, 20).Select(index => cache.GetOrCreateAsync("a", MakeAsync, cancellationToken: index == 0 ? impatient.Token : default)
            .AsTask()).ToList();
        await Eventually.TrueAsync(() => Volatile.Read(ref calls) == 1, "the factory was called");
        await impatient.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => tasks[0]);
        proceed.SetResult();
        var lists = await Task.WhenAll(tasks.Skip(1));
        Assert.All(lists, static list => Assert.Equal([1, 2, 3], list));
        Assert.Equal(19, lists.Distinct(ReferenceEqualityComparer.Instance).Count());
        Assert.Equal(1, calls);

        // A caller that changes its object changes no other's.
        lists[0].Clear();
        Assert.Equal(3, (await cache.GetOrCreateAsync("a", MakeAsync)).Count);
        Assert.Equal(1, calls);

        // Given up by all.
        var (begun, abandoned) = (new TaskCompletionSource(), new TaskCompletionSource());
        using var all = new CancellationTokenSource();
        var given = cache.GetOrCreateAsync(
            "b",
            async stop =>
            {
                await using var registered = stop.Register(abandoned.SetResult);
                begun.SetResult();
                await Task.Delay(Timeout.Infinite, stop);
                return "never";
            },
            cancellationToken: all.Token).AsTask();
        await begun.Task.WaitAsync(Eventually.Limit);
        await all.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => given);
        await abandoned.Task.WaitAsync(Eventually.Limit);
        Assert.Equal("new", await TextAsync(cache, "b"));

        // What the factory throws is thrown to its callers, and not kept.
        await Assert.ThrowsAsync<InvalidDataException>(
            () => cache.GetOrCreateAsync<string>("c", static _ => throw new InvalidDataException("The source is broken.")).AsTask());
        Assert.Null(await cache.GetOrCreateAsync<string?>("c", static _ => ValueTask.FromResult<string?>(null)));
        Assert.Null(await cache.GetOrCreateAsync<string?>("c", static _ => ValueTask.FromResult<string?>("not null")));

        async ValueTask<List<int>> MakeAsync(CancellationToken cancellationToken)
        {
            Interlocked.Increment(ref calls);
            await proceed.Task.WaitAsync(cancellationToken);
            return [1, 2, 3];
        }
    }

    /// <summary>Versions of a program that run together read each other's entries.</summary>
    [Fact]
    public async Task Entry_HasTheseBytes()
    {
        await using var node = await NodeAsync();
        await using var program = await ProgramAsync(node);
        await CacheOf(program).SetAsync("a", "1", tags: ["t"]);
        await CacheOf(program).SetAsync<string?>("b", null);
        Assert.Equal($"01000002{Tag("*")}{Tag("t")}31", Convert.ToHexString((await program.Client.GetAsync("hybrid/e/a")).Value.Span));
        Assert.Equal($"01010001{Tag("*")}", Convert.ToHexString((await program.Client.GetAsync("hybrid/e/b")).Value.Span));

        static string Tag(string name) => $"000A{Convert.ToHexString(Encoding.UTF8.GetBytes($"hybrid/t/{name}"))}{new string('0', 32)}";
    }

    [Fact]
    public async Task Values_ThatCannotBeKept_AreMadeAnew()
    {
        await using var node = await NodeAsync();
        await using var program = await ProgramAsync(node);
        var cache = CacheOf(program);
        var large = new byte[8 << 20];
        Assert.Same(large, await cache.GetOrCreateAsync("a", _ => ValueTask.FromResult(large)));
        Assert.Equal(3, (await cache.GetOrCreateAsync("a", static _ => ValueTask.FromResult(new byte[3]))).Length);
        await cache.SetAsync("a", new byte[1]);
        await cache.SetAsync("a", large);
        Assert.Equal(4, (await cache.GetOrCreateAsync("a", static _ => ValueTask.FromResult(new byte[4]))).Length);
        // Of another type than the one that is asked for.
        await cache.SetAsync("b", "text");
        Assert.Equal(5, (await cache.GetOrCreateAsync("b", static _ => ValueTask.FromResult(new List<int> { 5 }))).Single());
    }

    [Fact]
    public async Task WithoutACluster_ValuesAreMade_AndARemoveFails()
    {
        await using var program = await ProgramHost.StartAsync(
            ["http://127.0.0.1:1"],
            static builder => builder.Services.AddKvClusterHybridCache(static options => options.Timeout = TimeSpan.FromMilliseconds(50)),
            timeout: TimeSpan.FromMilliseconds(400));
        var cache = CacheOf(program);
        await cache.SetAsync("a", "1");
        Assert.Equal("new", await TextAsync(cache, "a", "tag"));
        await Assert.ThrowsAsync<KvUnavailableException>(() => cache.RemoveAsync("a").AsTask());
        await Assert.ThrowsAsync<KvUnavailableException>(() => cache.RemoveByTagAsync("tag").AsTask());
    }

    [Fact]
    public async Task Start_WithInvalidOptions_Fails()
    {
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => ProgramHost.StartAsync(
            ["http://127.0.0.1:1"],
            static builder => builder.Services.AddKvClusterHybridCache(
                static options => (options.LocalBytesMax, options.Expiration) = (0, TimeSpan.FromDays(31)))));
        Assert.Equal(
            [
                "The expiry of the hybrid cache must be more than nothing and at most the longest one, and that at most 100 days.",
                "The bytes in memory and the silence of shards must be more than nothing in the hybrid cache.",
            ],
            failure.Failures);
    }

    private static Task<ProgramHost> PagesAsync(NodeCluster nodes) => ProgramHost.StartAsync(
        [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)],
        // What is in memory stays for so long when the cluster is gone.
        static builder => builder.Services.AddKvClusterHybridCache(static options => options.Expiration = TimeSpan.FromMinutes(1)),
        static pages =>
        {
            pages.MapGet("/number", NumberAsync);
            pages.MapGet("/set/{number:int}", SetAsync);
        });

    private static async Task NumberAsync(HttpContext context)
    {
        var cache = context.RequestServices.GetRequiredService<HybridCache>();
        var made = new HybridCacheEntryOptions { Flags = HybridCacheEntryFlags.DisableDistributedCacheWrite };
        var number = await cache.GetOrCreateAsync("number", static _ => ValueTask.FromResult("made"), made, cancellationToken: context.RequestAborted);
        await context.Response.WriteAsync(number, context.RequestAborted);
    }

    private static async Task SetAsync(HttpContext context)
    {
        var cache = context.RequestServices.GetRequiredService<HybridCache>();
        await cache.SetAsync("number", Convert.ToString(context.Request.RouteValues["number"], CultureInfo.InvariantCulture));
    }

    private static async Task<NodeCluster> NodeAsync()
    {
        var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        return cluster;
    }

    // Not the time of a call is to be tested here.
    private static Task<ProgramHost> ProgramAsync(NodeCluster cluster) => ProgramHost.StartAsync(
        [cluster.AddressOf(1)], static builder => builder.Services.AddKvClusterHybridCache(static options => options.Timeout = Eventually.Limit));

    private static HybridCache CacheOf(ProgramHost program) => program.Services.GetRequiredService<HybridCache>();

    private static ValueTask<string> TextAsync(HybridCache cache, string key, params string[] tags) =>
        cache.GetOrCreateAsync(key, static _ => ValueTask.FromResult("new"), tags: tags);
}
