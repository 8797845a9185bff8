using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Reads of ranges: scans, pages, counts, and the snapshots that they are from.</summary>
public abstract class ScanConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Scan_ReturnsWhatIsAskedFor_InOrder()
    {
        await PutAllAsync("1", "2", "3", "4", "5");
        Assert.Equal(["1", "2", "3", "4", "5"], await KeysAsync(new KvScan { Prefix = _prefix }));
        Assert.Equal(["2", "3"], await KeysAsync(new KvScan { Start = _prefix + "2", End = _prefix + "4" }));
        Assert.Equal(["3", "4", "5"], await KeysAsync(new KvScan { Prefix = _prefix, Start = _prefix + "3" }));
        Assert.Equal(["5", "4"], await KeysAsync(new KvScan { Prefix = _prefix, Reverse = true, Limit = 2 }));
        Assert.Equal(["1"], await KeysAsync(new KvScan { Prefix = _prefix, BytesMax = 1 }));
        Assert.Empty(await KeysAsync(new KvScan { Prefix = _prefix + "x" }));
        var keysOnly = await Client.ScanAsync(new KvScan { Prefix = _prefix, KeysOnly = true }).ToListAsync();
        Assert.All(keysOnly, static entry => Assert.True(entry.Value.IsEmpty));
        var whole = await Client.ScanAsync(new KvScan { Prefix = _prefix, WithLife = true }).ToListAsync();
        Assert.Equal("of 1", whole[0].Value.ToUtf8String());
        Assert.Equal((await Client.GetAsync(_prefix + "1")).Etag, whole[0].Etag);
        Assert.All(whole, static entry => Assert.Equal(default, entry.Life));
    }

    [Fact]
    public async Task Scan_GoesOverShards_InBothDirections()
    {
        var (low, high) = await store.ClearBorderAsync();
        await Client.PutAsync(low, "v");
        await Client.PutAsync(high, "v");
        var scan = new KvScan { Start = low, End = high + "0" };
        Assert.Equal([low, high], (await Client.ScanAsync(scan).ToListAsync()).Select(static entry => entry.Key.ToUtf8String()));
        Assert.Equal(
            [high, low], (await Client.ScanAsync(scan with { Reverse = true }).ToListAsync()).Select(static entry => entry.Key.ToUtf8String()));
        Assert.Equal(2, await Client.CountRangeAsync(new KvRange { Start = low, End = high + "0" }));
        Assert.Equal(2ul, (await Client.DeleteRangeAsync(new KvRange { Start = low, End = high + "0" })).Deleted);
    }

    [Fact]
    public async Task Scan_ThatIsUnderWay_DoesNotSeeWhatChanges()
    {
        await PutAllAsync("1", "2", "3");
        await using var entries = Client.ScanAsync(new KvScan { Prefix = _prefix }).GetAsyncEnumerator();
        Assert.True(await entries.MoveNextAsync());
        await Client.DeleteAsync(_prefix + "2");
        await Client.PutAsync(_prefix + "4", "new");
        var keys = new List<string>();
        while (await entries.MoveNextAsync())
            keys.Add(entries.Current.Key.ToUtf8String()[_prefix.Length..]);
        Assert.Equal(["2", "3"], keys);
    }

    [Fact]
    public async Task Scan_ThatIsCancelled_Ends()
    {
        await PutAllAsync("1", "2");
        using var cancelled = new CancellationTokenSource();
        await cancelled.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(
            () => Client.ScanAsync(new KvScan { Prefix = _prefix }, cancelled.Token).ToListAsync().AsTask());
    }

    [Fact]
    public async Task Count_CountsTheRange()
    {
        await PutAllAsync("1", "2", "3");
        Assert.Equal(3, await Client.CountAsync(_prefix));
        Assert.Equal(2, await Client.CountRangeAsync(new KvRange { Prefix = _prefix, Start = _prefix + "2" }));
        Assert.Equal(0, await Client.CountAsync(_prefix + "x"));
    }

    [Fact]
    public async Task Pages_AreOfOneSnapshot()
    {
        await PutAllAsync("1", "2", "3", "4", "5");
        var list = new KvList { Prefix = _prefix, Limit = 2 };
        var first = await Client.ListAsync(list);
        Assert.Equal(["1", "2"], KeysOf(first));
        await Client.DeleteAsync(_prefix + "3");
        await Client.PutAsync(_prefix + "6", "new");
        var second = await Client.ListAsync(list, first.NextToken);
        Assert.Equal(["3", "4"], KeysOf(second));
        Assert.Equal(first.Position.Etag, second.Position.Etag);
        var third = await Client.ListAsync(list, second.NextToken);
        Assert.Equal(["5"], KeysOf(third));
        Assert.Equal(["1", "2", "4", "5", "6"], KeysOf(await Client.ListAsync(new KvList { Prefix = _prefix })));
    }

    [Fact]
    public async Task Pages_InReverse_AndOfKeysOnly_AreAskedForLikewise()
    {
        await PutAllAsync("1", "2", "3");
        var list = new KvList { Prefix = _prefix, Limit = 2, Reverse = true, KeysOnly = true };
        var first = await Client.ListAsync(list);
        Assert.Equal(["3", "2"], KeysOf(first));
        Assert.All(first.Entries, static entry => Assert.True(entry.Value.IsEmpty));
        Assert.Equal(["1"], KeysOf(await Client.ListAsync(list, first.NextToken)));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(list with { Reverse = false }, first.NextToken)));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(list, new byte[] { 1, 2, 3 })));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(list with { Limit = 10_001 })));
        Assert.Single((await Client.ListAsync(list with { Limit = 0, BytesMax = 1 })).Entries);
    }

    /// <summary>A page ends with its shard, so the last one of a shard may be short or empty although others follow.</summary>
    [Fact]
    public async Task Pages_GoOverShards()
    {
        var (low, high) = await store.ClearBorderAsync();
        await Client.PutAsync(low, "v");
        await Client.PutAsync(high, "v");
        foreach (var reverse in (bool[])[false, true])
        {
            var list = new KvList { Start = low, End = high + "0", Reverse = reverse };
            var keys = new List<string>();
            var pages = 0;
            ReadOnlyMemory<byte> token = default;
            do
            {
                var page = await Client.ListAsync(list, token);
                keys.AddRange(page.Entries.Select(static entry => entry.Key.ToUtf8String()));
                token = page.NextToken;
                pages++;
            }
            while (!token.IsEmpty);
            Assert.Equal(reverse ? $"{high} {low}" : $"{low} {high}", string.Join(' ', keys));
            Assert.Equal(2, pages);
        }
    }

    private async Task PutAllAsync(params string[] keys)
    {
        foreach (var key in keys)
            await Client.PutAsync(_prefix + key, $"of {key}");
    }

    private async Task<IEnumerable<string>> KeysAsync(KvScan scan) =>
        (await Client.ScanAsync(scan).ToListAsync()).Select(entry => entry.Key.ToUtf8String()[_prefix.Length..]);

    private IEnumerable<string> KeysOf(KvPage page) => page.Entries.Select(entry => entry.Key.ToUtf8String()[_prefix.Length..]);
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryScanTests(InMemoryStoreUnderTest store) : ScanConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterScanTests(ClusterUnderTest store) : ScanConformance(store);
