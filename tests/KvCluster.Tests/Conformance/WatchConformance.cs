using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Watches: what they see, in which order, where they begin, and where they go on.</summary>
public abstract class WatchConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Changes_AreSeenOnce_InOrder_WithTheirEtags()
    {
        await Client.PutAsync(_prefix + "before", "v");
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix });
        var put = await Client.PutAsync(_prefix + "a", "1");
        await Client.PutAsync(store.NewPrefix() + "other", "v");
        await Client.Sets.AddAsync(_prefix + "set", ["m"]);
        await Client.TouchAsync(_prefix + "a", TimeSpan.FromHours(1));
        await Client.DeleteAsync(_prefix + "none");
        await Client.IncrementAsync(_prefix + "n");
        var deleted = await Client.DeleteAsync(_prefix + "a");
        var events = await watch.TakeAsync(5);
        Assert.Equal(
            [KvEventKind.Put, KvEventKind.Touch, KvEventKind.Delete, KvEventKind.Put, KvEventKind.Delete], events.Select(static happened => happened.Kind));
        Assert.All(events, static happened => Assert.Equal((KvEventReason.User, false), (happened.Reason, happened.IsPreviousKnown)));
        Assert.Equal((_prefix + "a", "1", put.Etag), (events[0].Key.ToUtf8String(), events[0].Value.ToUtf8String(), events[0].Etag));
        Assert.Equal((_prefix + "n", "1"), (events[3].Key.ToUtf8String(), events[3].Value.ToUtf8String()));
        Assert.Equal(deleted.Position.Etag, events[4].Etag);
        Assert.Equal(events.OrderBy(static happened => happened.Etag), events);
    }

    [Fact]
    public async Task Events_OfOneWrite_AreInOneMessage()
    {
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix });
        var written = await Client.WriteAsync(new KvWrite().Put(_prefix + "a", "1").Put(_prefix + "b", "2").Delete(_prefix + "a"));
        var message = await watch.NextAsync();
        Assert.Equal([_prefix + "a", _prefix + "b", _prefix + "a"], message.Events.Select(static happened => happened.Key.ToUtf8String()));
        Assert.Equal(written.Position.Etag, message.Events[2].Etag);
        Assert.True(message.Position.Etag >= written.Position.Etag);
        Assert.False(message.IsInitial);
    }

    [Fact]
    public async Task Delete_OfARange_IsOneEvent_OfWhoeverWatchesAPartOfIt()
    {
        await Client.PutAsync(_prefix + "b/1", "v");
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix + "b/" });
        await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "c", End = _prefix + "d" });
        await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "a", End = _prefix + "z" });
        var removed = Assert.Single(await watch.TakeAsync(1));
        Assert.Equal(KvEventKind.DeleteRange, removed.Kind);
        // What is told is what is watched of the range.
        Assert.Equal((KvKey)(_prefix + "b/"), removed.Key);
        Assert.Equal(removed.Key.PrefixEnd, removed.RangeEnd);
    }

    [Fact]
    public async Task Delete_OfARange_IsADelete_OfWhoeverWatchesOneKeyOfIt()
    {
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix + "b", IsOneKey = true });
        await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "c", End = _prefix + "d" });
        var deleted = await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "a", End = _prefix + "z" });
        var removed = Assert.Single(await watch.TakeAsync(1));
        Assert.Equal((KvEventKind.Delete, _prefix + "b", deleted.Position.Etag), (removed.Kind, removed.Key.ToUtf8String(), removed.Etag));
        Assert.True(removed.RangeEnd.IsEmpty);
    }

    [Fact]
    public async Task Delete_OfARange_IsTheDeletesOfItsKeys_IfThatIsAskedFor()
    {
        foreach (var key in (string[])["a", "b", "d"])
            await Client.PutAsync(_prefix + key, "v");
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, Initial = true, ExpandRanges = true });
        await Client.PutAsync(_prefix + "c", "v");
        await Client.DeleteAsync(_prefix + "a");
        await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "a", End = _prefix + "d" });
        await Client.DeleteRangeAsync(new KvRange { Prefix = _prefix });
        var events = await watch.TakeAsync(5);
        Assert.Equal(
            [(KvEventKind.Put, "c"), (KvEventKind.Delete, "a"), (KvEventKind.Delete, "b"), (KvEventKind.Delete, "c"), (KvEventKind.Delete, "d")],
            events.Select(happened => (happened.Kind, happened.Key.ToUtf8String()[_prefix.Length..])));
        Assert.Equal("BAD_REQUEST", await ReasonOfAsync(new KvWatch { Prefix = _prefix, ExpandRanges = true }));
    }

    /// <summary>The empty end of an operation is that of its shard, so no key of the next one goes with it.</summary>
    [Fact]
    public async Task Delete_OfARangeWithoutAnEnd_InAWrite_EndsWithItsShard()
    {
        var (low, high) = await store.ClearBorderAsync();
        await Client.PutAsync(low, "v");
        await Client.PutAsync(high, "v");
        var watched = new KvWatch { Start = low, End = high + "0", Initial = true, ExpandRanges = true };
        await using var watch = await WatchedEvents.BeginAsync(Client, watched);
        var write = new KvWrite();
        write.Operations.DeleteRange(low, default);
        Assert.Equal(1, (await Client.WriteAsync(write)).Deleted);
        Assert.Equal(low, Assert.Single(await watch.TakeAsync(1)).Key.ToUtf8String());
        await Client.DeleteAsync(high);
        Assert.Equal(high, Assert.Single(await watch.TakeAsync(1)).Key.ToUtf8String());
    }

    [Fact]
    public async Task Watch_WithPrevious_TellsWhatWasReplaced()
    {
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, WithPrevious = true });
        var first = await Client.PutAsync(_prefix + "a", "1");
        var second = await Client.PutAsync(_prefix + "a", "2");
        await Client.DeleteAsync(_prefix + "a");
        var events = await watch.TakeAsync(3);
        // A node tells it of recent changes only.
        (Etag? Etag, string Value)[] replaced = [(null, ""), (first.Etag, "1"), (second.Etag, "2")];
        foreach (var (index, happened) in events.Index())
        {
            if (happened.IsPreviousKnown)
                Assert.Equal(replaced[index], (happened.PreviousEtag, happened.PreviousValue.ToUtf8String()));
        }
    }

    [Fact]
    public async Task Watch_OfOneKey_OfKeysOnly_SeesNothingElse()
    {
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix + "a", IsOneKey = true, KeysOnly = true });
        await Client.PutAsync(_prefix + "aa", "v");
        await Client.PutAsync(_prefix + "a", "v");
        var only = Assert.Single(await watch.TakeAsync(1));
        Assert.Equal((_prefix + "a", 0), (only.Key.ToUtf8String(), only.Value.Length));
    }

    [Fact]
    public async Task Watch_WithSets_SeesTheirMembers()
    {
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, WithSets = true });
        await Client.Sets.AddAsync(_prefix + "set", ["m"]);
        await Client.Sets.RemoveAsync(_prefix + "set", ["m"]);
        var events = await watch.TakeAsync(2);
        Assert.Equal([(KvEventKind.SetAdd, "m"), (KvEventKind.SetRemove, "m")],
            events.Select(static happened => (happened.Kind, happened.Member.ToUtf8String())));
    }

    [Fact]
    public async Task Ends_OfKeys_HaveTheirReasons()
    {
        var session = await Client.Sessions.OpenAsync(_prefix, TimeSpan.FromHours(1));
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix });
        var life = TimeSpan.FromMilliseconds(200);
        await Client.PutAsync(_prefix + "short", "v", new KvPutOptions { TimeToLive = life });
        await store.PassAsync(life);
        var events = await watch.TakeAsync(2);
        Assert.Equal((KvEventKind.Delete, KvEventReason.Expired), (events[1].Kind, events[1].Reason));
        await Client.PutAsync(_prefix + "owned", "v", new KvPutOptions { Owner = session });
        await Client.Sessions.EndAsync(session);
        events = await watch.TakeAsync(2);
        Assert.Equal((KvEventKind.Delete, KvEventReason.SessionEnded), (events[1].Kind, events[1].Reason));
    }

    [Fact]
    public async Task Watch_WithEntries_BeginsWithThem_AndGoesOnWithChanges()
    {
        await Client.PutAsync(_prefix + "a", "1");
        await Client.PutAsync(_prefix + "b", "2");
        await Client.DeleteAsync(_prefix + "b");
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, Initial = true });
        var entry = Assert.Single(watch.Initial);
        Assert.Equal((KvEventKind.Put, _prefix + "a", "1"), (entry.Kind, entry.Key.ToUtf8String(), entry.Value.ToUtf8String()));
        await Client.PutAsync(_prefix + "c", "3");
        Assert.Equal(_prefix + "c", Assert.Single(await watch.TakeAsync(1)).Key.ToUtf8String());
    }

    [Fact]
    public async Task Watch_GoesOnAfterItsToken_AndAfterThePositionOfAnAnswer()
    {
        string token;
        await using (var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix }))
        {
            await Client.PutAsync(_prefix + "a", "1");
            await watch.TakeAsync(1);
            token = watch.Token;
        }
        var missed = await Client.PutAsync(_prefix + "b", "2");
        await Client.PutAsync(_prefix + "c", "3");
        await using var resumed = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, After = token });
        Assert.Equal([_prefix + "b", _prefix + "c"], (await resumed.TakeAsync(2)).Select(static happened => happened.Key.ToUtf8String()));
        await using var after = await WatchedEvents.BeginAsync(Client, new KvWatch { Prefix = _prefix, AfterPositions = [missed.Position] });
        Assert.Equal(_prefix + "c", Assert.Single(await after.TakeAsync(1)).Key.ToUtf8String());
    }

    [Fact]
    public async Task Watch_OfSeveralShards_SeesTheChangesOfEach()
    {
        var (low, high) = await store.ClearBorderAsync();
        await Client.PutAsync(low, "v");
        await using var watch = await WatchedEvents.BeginAsync(Client, new KvWatch { Start = low, End = high + "0", Initial = true });
        Assert.Equal(low, Assert.Single(watch.Initial).Key.ToUtf8String());
        await Client.PutAsync(high, "1");
        await Client.PutAsync(low, "2");
        var events = await watch.TakeAsync(2);
        Assert.Equal([low, high], events.Select(static happened => happened.Key.ToUtf8String()).Order(StringComparer.Ordinal));
        await using var resumed = await WatchedEvents.BeginAsync(Client, new KvWatch { Start = low, End = high + "0", After = watch.Token });
        await Client.PutAsync(high, "3");
        Assert.Equal("3", Assert.Single(await resumed.TakeAsync(1)).Value.ToUtf8String());
    }

    [Fact]
    public async Task Watch_OfNoRange_OrAfterNoToken_OrAfterAnotherHistory_IsRefused()
    {
        var put = await Client.PutAsync(_prefix + "a", "1");
        Assert.Equal("BAD_REQUEST", await ReasonOfAsync(new KvWatch { Start = _prefix + "b", End = _prefix + "a" }));
        Assert.Equal("BAD_REQUEST", await ReasonOfAsync(new KvWatch { Prefix = _prefix, After = "w1.nothing" }));
        Assert.Equal("BAD_REQUEST", await ReasonOfAsync(new KvWatch { Prefix = _prefix, AfterPositions = [put.Position, put.Position] }));
        Assert.Equal("LINEAGE_CHANGED", await ReasonOfAsync(
            new KvWatch { Prefix = _prefix, AfterPositions = [put.Position with { Lineage = put.Position.Lineage + 2 }] }));
    }

    [Fact]
    public async Task Watch_ThatIsCancelled_Ends()
    {
        using var cancelled = new CancellationTokenSource();
        await using var messages = Client.WatchAsync(new KvWatch { Prefix = _prefix }, cancelled.Token).GetAsyncEnumerator(cancelled.Token);
        Assert.True(await messages.MoveNextAsync());
        var next = messages.MoveNextAsync().AsTask();
        await cancelled.CancelAsync();
        // A message may have come before.
        await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            while (await next)
                next = messages.MoveNextAsync().AsTask();
        });
    }

    private async Task<string> ReasonOfAsync(KvWatch watch)
    {
        await using var messages = Client.WatchAsync(watch).GetAsyncEnumerator();
        return (await Assert.ThrowsAnyAsync<KvException>(() => messages.MoveNextAsync().AsTask())).Reason;
    }
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryWatchTests(InMemoryStoreUnderTest store) : WatchConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterWatchTests(ClusterUnderTest store) : WatchConformance(store);
