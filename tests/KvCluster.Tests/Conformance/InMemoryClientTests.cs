using KvCluster.Client;
using KvCluster.Testing;

namespace KvCluster.Tests.Conformance;

/// <summary>What a test can have of the client in memory besides the semantics of the cluster: its time, and the bounds that it would rarely meet.</summary>
public sealed class InMemoryClientTests : IDisposable
{
    private readonly ManualTime _time = new();
    private readonly InMemoryKvClient _client;

    public InMemoryClientTests() => _client = new InMemoryKvClient(new InMemoryKvOptions { Time = _time, ChangesKept = 2 });

    public void Dispose() => _client.Dispose();

    [Fact]
    public async Task Key_LivesExactlyItsTime_AndTheWatchIsToldWithoutACall()
    {
        await using var watch = await WatchedEvents.BeginAsync(_client, new KvWatch());
        await _client.PutAsync("a", "v", new KvPutOptions { TimeToLive = TimeSpan.FromMinutes(1) });
        _time.Advance(TimeSpan.FromMinutes(1) - TimeSpan.FromMilliseconds(1));
        Assert.Equal(TimeSpan.FromMilliseconds(1), (await _client.GetAsync("a", new KvGetOptions { WithLife = true })).Life.Left);
        // It waits for the second event.
        var events = watch.TakeAsync(2);
        _time.Advance(TimeSpan.FromMilliseconds(1));
        Assert.Equal(KvEventReason.Expired, (await events)[1].Reason);
        Assert.False((await _client.GetAsync("a")).Found);
    }

    /// <summary>A timer of the system takes no time of a century.</summary>
    [Fact]
    public async Task Key_WithTheLongestLife_IsKept()
    {
        using var client = new InMemoryKvClient();
        await client.PutAsync("a", "v", new KvPutOptions { TimeToLive = TimeSpan.FromDays(36_500) });
        Assert.True((await client.GetAsync("a")).Found);
    }

    [Fact]
    public async Task Expiry_OfAValueThatWasReplaced_EndsNothing()
    {
        await _client.PutAsync("a", "1", new KvPutOptions { TimeToLive = TimeSpan.FromSeconds(1) });
        await _client.PutAsync("a", "2", new KvPutOptions { TimeToLive = TimeSpan.FromSeconds(3) });
        _time.Advance(TimeSpan.FromSeconds(2));
        Assert.Equal("2", (await _client.GetAsync("a")).Value.ToUtf8String());
        await _client.TouchAsync("a", null);
        _time.Advance(TimeSpan.FromDays(1));
        Assert.True((await _client.GetAsync("a")).Found);
    }

    [Fact]
    public async Task Watch_ThatLagsBehindTheChangesKept_IsCompacted()
    {
        var first = await _client.PutAsync("a", "1");
        for (var number = 0; number < 2; number++)
            await _client.PutAsync("a", $"{number}");
        await using (var within = await WatchedEvents.BeginAsync(_client, new KvWatch { AfterPositions = [first.Position] }))
            await within.TakeAsync(2);
        await _client.PutAsync("a", "last");
        await using var behind = _client.WatchAsync(new KvWatch { AfterPositions = [first.Position] }).GetAsyncEnumerator();
        var compacted = await Assert.ThrowsAsync<KvCompactedException>(() => behind.MoveNextAsync().AsTask());
        Assert.True(compacted.Oldest.Etag > first.Etag);
        await using var anew = await WatchedEvents.BeginAsync(_client, new KvWatch { AfterPositions = [compacted.Oldest] });
        await anew.TakeAsync(2);
    }

    [Fact]
    public async Task Snapshot_OfAPage_IsKeptForSomeSeconds_AndANewerOneWillDoIfThatIsAskedFor()
    {
        foreach (var key in (string[])["a", "b", "c"])
            await _client.PutAsync(key, "v");
        var list = new KvList { Limit = 1 };
        var first = await _client.ListAsync(list);
        Assert.Equal(TimeSpan.FromSeconds(10), first.SnapshotKeptFor);
        await _client.DeleteAsync("b");
        _time.Advance(TimeSpan.FromSeconds(10));
        Assert.Equal("SNAPSHOT_TOO_OLD", await Refused.ReasonOfAsync(() => _client.ListAsync(list, first.NextToken)));
        var second = await _client.ListAsync(list with { NewerSnapshots = true }, first.NextToken);
        Assert.Equal("c", Assert.Single(second.Entries).Key.ToUtf8String());
        Assert.True(second.Position.Etag > first.Position.Etag);
    }

    [Fact]
    public async Task Snapshot_OfManyPages_IsKeptForAMinute()
    {
        for (var number = 0; number < 9; number++)
            await _client.PutAsync($"{number}", "v");
        var list = new KvList { Limit = 1 };
        var page = await _client.ListAsync(list);
        for (var pages = 1; pages <= 6; pages++)
        {
            _time.Advance(TimeSpan.FromSeconds(9));
            page = await _client.ListAsync(list, page.NextToken);
        }
        Assert.Equal(TimeSpan.FromSeconds(6), page.SnapshotKeptFor);
        _time.Advance(TimeSpan.FromSeconds(6));
        Assert.Equal("SNAPSHOT_TOO_OLD", await Refused.ReasonOfAsync(() => _client.ListAsync(list, page.NextToken)));
    }

    [Fact]
    public async Task Bookmark_ComesEachSecond_WithThePosition()
    {
        await using var messages = _client.WatchAsync(new KvWatch { Prefix = "a" }).GetAsyncEnumerator();
        Assert.True(await messages.MoveNextAsync());
        var put = await _client.PutAsync("b", "v");
        var next = messages.MoveNextAsync().AsTask();
        await Eventually.TrueAsync(
            () =>
            {
                _time.Advance(TimeSpan.FromSeconds(1));
                return next.IsCompleted;
            },
            "the watch is told that it goes on");
        Assert.True(await next);
        Assert.True(messages.Current.IsBookmark);
        Assert.Equal(put.Position, messages.Current.Position);
        Assert.NotNull(messages.Current.Token);
    }

    [Fact]
    public async Task StaleRead_SaysThatItIsNew()
    {
        Assert.Equal(TimeSpan.Zero, (await _client.GetAsync("a", KvReadMode.Stale)).Age);
        Assert.Null((await _client.GetAsync("a")).Age);
    }

    [Fact]
    public async Task Client_ThatIsDisposed_EndsItsWatches_AndTakesNoCalls()
    {
        var client = new InMemoryKvClient();
        await using var messages = client.WatchAsync(new KvWatch()).GetAsyncEnumerator();
        Assert.True(await messages.MoveNextAsync());
        var next = messages.MoveNextAsync().AsTask();
        client.Dispose();
        await client.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(async () =>
        {
            while (await next)
                next = messages.MoveNextAsync().AsTask();
        });
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.GetAsync("a").AsTask());
        Assert.Throws<ObjectDisposedException>(() => client.ScanAsync(new KvScan()));
    }

    [Fact]
    public void Options_ThatAreInvalid_AreRefused()
    {
        Assert.Throws<ArgumentException>(() => new InMemoryKvClient(new InMemoryKvOptions { ShardBounds = ["m", "m"] }));
        Assert.Throws<ArgumentException>(() => new InMemoryKvClient(new InMemoryKvOptions { ShardBounds = [default] }));
        Assert.Throws<ArgumentException>(() => new InMemoryKvClient(new InMemoryKvOptions { ChangesKept = 0 }));
    }
}
