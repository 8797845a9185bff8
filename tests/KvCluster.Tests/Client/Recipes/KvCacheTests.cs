using Grpc.Core;
using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.Tests.Node.Watching;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>A prefix in memory: complete, consistent for each shard, never going back, and at a position that its reader can wait for.</summary>
public sealed class KvCacheTests
{
    [Fact]
    public async Task Cache_HasWhatAnAnswerSays_WhenItIsWaitedFor()
    {
        await using var cluster = await NodeCluster.StartAsync(1, "m"u8.ToArray());
        await using var client = ClientOf(cluster, 1);
        await client.PutAsync("c/0", "before");
        await client.PutAsync("d/0", "not in the cache");
        await using var cache = new KvCache(client, "c/");
        var first = await cache.WhenCompleteAsync();
        Assert.Equal(["c/0=before"], Text(first));

        var put = await client.PutAsync("c/1", "new");
        Assert.True((await cache.WaitForAsync(put.Position)).TryGet("c/1", out var entry));
        Assert.Equal(("new", put.Etag), (entry.Value.ToUtf8String(), entry.Etag));
        var removed = await client.DeleteRangeAsync(new KvRange { Start = "a", End = "c/1" });
        Assert.Equal(["c/1=new"], Text(await cache.WaitForAsync(removed.Position)));
        // A view stays as it is.
        Assert.Equal(["c/0=before"], Text(first));
        var elsewhere = await client.PutAsync("z", "in another shard");
        await Assert.ThrowsAsync<ArgumentException>(() => cache.WaitForAsync(elsewhere.Position).AsTask());
    }

    [Fact]
    public async Task Cache_LosesKeysThatEnd()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        await using var cache = new KvCache(client, "c/", new KvCacheOptions { KeysOnly = true });
        var session = await client.Sessions.OpenAsync("c/", TimeSpan.FromHours(1));
        await client.PutAsync("c/expires", "v", new KvPutOptions { TimeToLive = TimeSpan.FromMilliseconds(100) });
        var owned = await client.PutAsync("c/owned", "v", new KvPutOptions { Owner = session });
        var view = await cache.WaitForAsync(owned.Position);
        Assert.True(view.TryGet("c/owned", out var entry));
        Assert.True(entry.Value.IsEmpty);
        await client.Sessions.EndAsync(session);
        while (view.Entries.Count > 0)
            view = await cache.NextAsync(view).AsTask().WaitAsync(Eventually.Limit);
        Assert.Equal(0, await client.CountAsync("c/"));
    }

    /// <summary>Two keys change together, so in each view they are the same; and while the leader stops, no view goes back.</summary>
    [Fact]
    public async Task Views_WhileTheLeaderStops_AreConsistent_AndNeverGoBack()
    {
        const int changes = 200;
        await using var cluster = await NodeCluster.StartAsync(3);
        var leader = await cluster.LeaderOfAsync(0);
        await using var client = ClientOf(cluster, 1, 2, 3);
        await using var cache = new KvCache(client, "c/");
        var seen = 0L;
        var reading = Task.Run(async () =>
        {
            var (view, etag) = (cache.View, default(Etag));
            while (seen < changes)
            {
                view = await cache.NextAsync(view).AsTask().WaitAsync(Eventually.Limit);
                var numbers = view.Entries.Values.Select(static one => one.Value.ToInt64()).ToList();
                Assert.True(numbers is [] || (numbers is [var one, var other] && one == other), string.Join(", ", numbers));
                var (position, number) = (Assert.Single(view.Positions), numbers.FirstOrDefault());
                Assert.True(position.Etag >= etag && number >= seen, $"{position.Etag} {number} after {etag} {seen}");
                (etag, seen) = (position.Etag, number);
            }
        });
        for (var change = 1; change <= changes; change++)
        {
            await client.WriteAsync(new KvWrite().Put("c/a", KvValue.FromInt64(change)).Put("c/b", KvValue.FromInt64(change)));
            if (change == changes / 2)
                await cluster.StopNodeAsync(leader);
        }
        await reading;
        Assert.Equal(changes, seen);
    }

    /// <summary>As when the journal does not reach back far enough. What changed meanwhile must not be missed.</summary>
    [Fact]
    public async Task Cache_WhoseWatchCannotGoOn_ReadsTheEntriesAgain()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        await client.PutAsync("c/0", "stays");
        await client.PutAsync("c/1", "goes");
        using var streams = new BreakingStreams
        {
            BreaksLeft = 1,
            MessagesMax = 3,
            Failure = StatusCode.FailedPrecondition,
            OnBreak = async () =>
            {
                await client.DeleteAsync("c/1");
                await client.PutAsync("c/2", "comes");
            },
        };
        await using var watcher = streams.Client(cluster.AddressOf(1));
        await using var cache = new KvCache(watcher, "c/");
        var view = await cache.WhenCompleteAsync();
        while (!view.Entries.ContainsKey("c/2"))
            view = await cache.NextAsync(view).AsTask().WaitAsync(Eventually.Limit);
        Assert.Equal(["c/0=stays", "c/2=comes"], Text(view));
        Assert.Equal(0, streams.BreaksLeft);
    }

    [Fact]
    public async Task Silence_TellsHowLongNothingWasHeard()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        var (time, hour) = (new ManualTime(), TimeSpan.FromHours(1));
        await using var cache = new KvCache(client, "c/", new KvCacheOptions(), time);
        await cache.WhenCompleteAsync();
        time.Advance(hour);
        await Eventually.TrueAsync(() => cache.Silence < hour, "the shard tells something");
        await cluster.StopNodeAsync(1);
        // What the node has sent before is read.
        await Eventually.TrueAsync(
            () =>
            {
                time.Advance(hour);
                return cache.Silence > 2 * hour;
            },
            "nothing is heard");
        Assert.True(cache.View.IsComplete);
    }

    [Fact]
    public async Task Cache_ThatIsTooSmall_OrDisposed_TellsThoseWhoWait()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, 1);
        await client.PutAsync("c/0", "0123456789");
        await using var small = new KvCache(client, "c/", new KvCacheOptions { BytesMax = 12 });
        var full = await Assert.ThrowsAsync<KvException>(() => small.WhenCompleteAsync().AsTask());
        Assert.Equal("CACHE_FULL", full.Reason);
        Assert.False(small.View.IsComplete);
        await using var refused = new KvCache(client, new byte[5_000]);
        await Assert.ThrowsAsync<KvInvalidRequestException>(() => refused.WhenCompleteAsync().AsTask());

        var cache = new KvCache(client, "c/", new KvCacheOptions { BytesMax = 13 });
        var waiting = cache.NextAsync(await cache.WhenCompleteAsync()).AsTask();
        Assert.False(waiting.IsCompleted);
        await cache.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => waiting);
        Assert.Equal(["c/0=0123456789"], Text(cache.View));
    }

    private static KvClient ClientOf(NodeCluster cluster, params uint[] nodes) =>
        new(new KvClientOptions { Endpoints = [.. nodes.Select(cluster.AddressOf)], Timeout = Eventually.Limit });

    private static IEnumerable<string> Text(KvCacheView view) => view.Entries.Values.Select(static entry => $"{entry.Key}={entry.Value}");
}
