using System.Buffers;
using System.Collections.Concurrent;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Caching.Distributed;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Options;

namespace KvCluster.Tests.Client;

/// <summary>The distributed cache of a program: what is in it, for how long, and what its requests see while nodes are away.</summary>
public sealed class DistributedCacheTests
{
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);

    /// <summary>A page that is made anew where the cache has none. The other nodes go on when one stops. Without them pages are made, later found.</summary>
    [Fact]
    [Trait("Turn", "3")]
    public async Task Pages_AreServedWhileNodesStop()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        var stopping = new List<Task>();
        await using (var program = await ProgramHost.StartAsync(
            [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)],
            static builder => builder.Services.AddKvClusterDistributedCache(),
            static pages => pages.MapGet("/page", PageAsync)))
        {
            await Eventually.TrueAsync(async () => await program.GetAsync("/page") == "found", "the page is found in the cache");
            var first = await nodes.LeaderOfAsync(0);
            stopping.Add(nodes.StopNodeAsync(first));
            await program.GetAsync("/page");
            await Eventually.TrueAsync(async () => await program.GetAsync("/page") == "found", "the page is found without a node");
            await stopping[0];

            var second = await nodes.LeaderOfAsync(0);
            stopping.Add(nodes.StopNodeAsync(second));
            await Eventually.TrueAsync(async () => await program.GetAsync("/page") == "made", "the page is made where two nodes are away");
            await stopping[1];
            await nodes.StartNodeAsync(first);
            await Eventually.TrueAsync(async () => await program.GetAsync("/page") == "found", "the page is found again");
        }
    }

    [Fact]
    public async Task Entries_AreWhatWasSet_UnderAnyText()
    {
        await using var cluster = await NodeAsync();
        await using var program = await ProgramAsync(cluster);
        var cache = CacheOf(program);
        string[] keys = ["", "a", "a/b", "\0", "\0a", "\uD800", "\uDC00\uD800", "ä", new('k', 1_024), new('k', 1_025), new('k', 100_000), new('ä', 1_025)];
        foreach (var (index, key) in keys.Index())
            await cache.SetAsync(key, [(byte)index], new DistributedCacheEntryOptions { AbsoluteExpirationRelativeToNow = Hour });
        foreach (var (index, key) in keys.Index())
            Assert.Equal((byte)index, Assert.Single(await cache.GetAsync(key) ?? []));
        Assert.Equal(keys.Length, await program.Client.CountAsync("cache/"));

        cache.Set("a", [], new DistributedCacheEntryOptions());
        Assert.Equal(0, cache.Get("a")?.Length);
        cache.Remove("a");
        Assert.Null(cache.Get("a"));
        cache.Refresh("a");
        Assert.Null(await cache.GetStringAsync("a"));

        var buffers = Assert.IsAssignableFrom<IBufferDistributedCache>(cache);
        await buffers.SetAsync("b", Sequence(new byte[100], [1, 2, 3]), new DistributedCacheEntryOptions { SlidingExpiration = Hour });
        var read = new ArrayBufferWriter<byte>();
        Assert.True(await buffers.TryGetAsync("b", read));
        Assert.Equal((103, 3), (read.WrittenCount, (int)read.WrittenSpan[^1]));
        Assert.False(buffers.TryGet("c", read));
        Assert.Equal(103, read.WrittenCount);
    }

    [Fact]
    public async Task SlidingExpiry_IsProlongedByAReadInItsLastPart_AndNotByEachRead()
    {
        await using var cluster = await NodeAsync();
        await using var program = await ProgramAsync(cluster);
        var (cache, client) = (CacheOf(program), program.Client);
        await cache.SetStringAsync("a", "1", new DistributedCacheEntryOptions { SlidingExpiration = Hour });
        var set = await LifeAsync(client, "cache/a");
        Assert.InRange(set.Left, Hour * 1.2, Hour * 1.25);
        Assert.Equal("01" + "000000000036EE80" + "0000000000000000" + "31", Convert.ToHexString((await client.GetAsync("cache/a")).Value.Span));

        // As if some time had passed.
        await client.TouchAsync("cache/a", Hour * 1.1);
        await cache.GetStringAsync("a");
        Assert.InRange((await LifeAsync(client, "cache/a")).Left, Hour * 1.05, Hour * 1.1);
        await client.TouchAsync("cache/a", Hour * 0.9);
        await cache.GetStringAsync("a");
        var prolonged = await LifeAsync(client, "cache/a");
        Assert.InRange(prolonged.Left, Hour * 1.2, Hour * 1.25);
        Assert.Equal(set.Etag, prolonged.Etag);
        await client.TouchAsync("cache/a", Hour * 0.9);
        await cache.RefreshAsync("a");
        Assert.InRange((await LifeAsync(client, "cache/a")).Left, Hour * 1.2, Hour * 1.25);

        // Not beyond the absolute end, near which nothing is written.
        var both = new DistributedCacheEntryOptions { SlidingExpiration = Hour, AbsoluteExpirationRelativeToNow = Hour / 2 };
        await cache.SetStringAsync("b", "1", both);
        await cache.GetStringAsync("b");
        Assert.InRange((await LifeAsync(client, "cache/b")).Left, Hour * 0.4, Hour * 0.5);
        await client.TouchAsync("cache/b", Hour / 10);
        await cache.GetStringAsync("b");
        Assert.InRange((await LifeAsync(client, "cache/b")).Left, Hour * 0.4, Hour * 0.5);

        // Without any expiry it has that of the options, and with an end that has passed it is removed.
        await cache.SetStringAsync("b", "1");
        Assert.InRange((await LifeAsync(client, "cache/b")).Left, TimeSpan.FromMinutes(24), TimeSpan.FromMinutes(25));
        await cache.SetStringAsync("b", "1", new DistributedCacheEntryOptions { AbsoluteExpiration = DateTimeOffset.UtcNow.AddSeconds(-1) });
        Assert.Null(await cache.GetStringAsync("b"));
    }

    /// <summary>A value that the cluster refuses must not leave the one before in the cache.</summary>
    [Fact]
    public async Task Entry_ThatIsTooLarge_IsNotSet_AndTheOneBeforeIsRemoved()
    {
        await using var cluster = await NodeAsync();
        await using var program = await ProgramAsync(cluster);
        var cache = CacheOf(program);
        var large = new byte[(8 << 20) - 17];
        await cache.SetAsync("a", large, new DistributedCacheEntryOptions());
        Assert.Equal(large.Length, (await cache.GetAsync("a"))?.Length);
        await cache.SetAsync("a", new byte[large.Length + 1], new DistributedCacheEntryOptions());
        Assert.Null(await cache.GetAsync("a"));
    }

    /// <summary>A line for each request would fill the log while the cluster is away.</summary>
    [Fact]
    public async Task WithoutACluster_NothingIsFound_ARemoveFails_AndTheLogSaysSoOnce()
    {
        var (lines, time) = (new ConcurrentQueue<string>(), new ManualTime());
        await using var program = await ProgramHost.StartAsync(
            ["http://127.0.0.1:1"],
            builder =>
            {
                builder.Logging.AddProvider(new Lines(lines));
                builder.Services.AddSingleton<TimeProvider>(time);
                builder.Services.AddKvClusterDistributedCache(static options => options.Timeout = TimeSpan.FromMilliseconds(50));
            },
            timeout: TimeSpan.FromMilliseconds(400));
        var cache = CacheOf(program);
        await cache.SetStringAsync("a", "1");
        Assert.Null(await cache.GetStringAsync("a"));
        await cache.RefreshAsync("a");
        await Assert.ThrowsAsync<KvUnavailableException>(() => cache.RemoveAsync("a"));
        using var stopped = new CancellationTokenSource();
        await stopped.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => cache.GetAsync("a", stopped.Token));
        Assert.StartsWith("1 calls went on without the distributed cache since the last line like this. ", Assert.Single(lines), StringComparison.Ordinal);
        time.Advance(TimeSpan.FromSeconds(10));
        Assert.Null(await cache.GetStringAsync("a"));
        Assert.StartsWith("3 calls went on without ", lines.Last(), StringComparison.Ordinal);
        Assert.Equal(2, lines.Count);
    }

    [Fact]
    public async Task Start_WithInvalidOptions_Fails()
    {
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => ProgramHost.StartAsync(
            ["http://127.0.0.1:1"],
            static builder => builder.Services.AddKvClusterDistributedCache(
                static options => (options.Prefix, options.Timeout) = ("", TimeSpan.Zero))));
        Assert.Equal(
            [
                "The prefix of the distributed cache must be text of 1 to 512 bytes.",
                "The timeout of the distributed cache must be more than nothing, and at most a day.",
            ],
            failure.Failures);
    }

    private static async Task PageAsync(HttpContext context)
    {
        var cache = context.RequestServices.GetRequiredService<IDistributedCache>();
        var found = await cache.GetStringAsync("page", context.RequestAborted);
        if (found is null)
            await cache.SetStringAsync("page", "found", new DistributedCacheEntryOptions { SlidingExpiration = Hour }, context.RequestAborted);
        await context.Response.WriteAsync(found ?? "made", context.RequestAborted);
    }

    private static async Task<NodeCluster> NodeAsync()
    {
        var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        return cluster;
    }

    // Not the time of a call is to be tested here.
    private static Task<ProgramHost> ProgramAsync(NodeCluster cluster) => ProgramHost.StartAsync(
        [cluster.AddressOf(1)], static builder => builder.Services.AddKvClusterDistributedCache(static options => options.Timeout = Eventually.Limit));

    private static IDistributedCache CacheOf(ProgramHost program) => program.Services.GetRequiredService<IDistributedCache>();

    private static async Task<(TimeSpan Left, Etag Etag)> LifeAsync(KvClient client, KvKey key)
    {
        var read = await client.GetAsync(key, new KvGetOptions { WithLife = true });
        Assert.True(read.Found);
        return (read.Life.Left!.Value, read.Etag);
    }

    private static ReadOnlySequence<byte> Sequence(byte[] first, byte[] second)
    {
        var end = new Segment(second, first.Length);
        return new ReadOnlySequence<byte>(new Segment(first, 0, end), 0, end, second.Length);
    }

    private sealed class Segment : ReadOnlySequenceSegment<byte>
    {
        public Segment(ReadOnlyMemory<byte> memory, long index, Segment? next = null) => (Memory, RunningIndex, Next) = (memory, index, next);
    }

    private sealed class Lines(ConcurrentQueue<string> lines) : ILoggerProvider, ILogger
    {
        public ILogger CreateLogger(string categoryName) => categoryName == "KvCluster.Extensions.Caching" ? this : new Lines(new ConcurrentQueue<string>());

        public void Dispose()
        {
        }

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            lines.Enqueue(formatter(state, exception));
    }
}
