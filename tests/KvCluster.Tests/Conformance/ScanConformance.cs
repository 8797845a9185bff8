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
        Assert.InRange(first.SnapshotKeptFor!.Value, TimeSpan.FromMilliseconds(1), TimeSpan.FromSeconds(10));
        await Client.DeleteAsync(_prefix + "3");
        await Client.PutAsync(_prefix + "6", "new");
        var second = await Client.ListAsync(list, first.NextToken);
        Assert.Equal(["3", "4"], KeysOf(second));
        Assert.Equal(first.Position.Etag, second.Position.Etag);
        var third = await Client.ListAsync(list, second.NextToken);
        Assert.Equal(["5"], KeysOf(third));
        Assert.Null(third.NextToken);
        Assert.Null(third.SnapshotKeptFor);
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
        foreach (var damaged in (string[])["123", "p1.", "p1.%", "p1.AQID"])
            Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(list, damaged)));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(list with { Limit = 10_001 })));
        Assert.Single((await Client.ListAsync(list with { Limit = 0, BytesMax = 1 })).Entries);
    }

    [Fact]
    public async Task Page_AskedForAgain_IsTheSame()
    {
        await PutAllAsync("1", "2", "3");
        var list = new KvList { Prefix = _prefix, Limit = 2 };
        var first = await Client.ListAsync(list);
        await Client.DeleteAsync(_prefix + "3");
        for (var time = 0; time < 2; time++)
            Assert.Equal(["3"], KeysOf(await Client.ListAsync(list, first.NextToken)));
    }

    /// <summary>A token was bytes, which each program that shows pages had to encode.</summary>
    [Fact]
    public async Task Token_OfAPage_StandsInAUrlAsItIs()
    {
        string[] names = ["1", "2?&", "3/\u00fc", "4"];
        await PutAllAsync(names);
        var list = new KvList { Prefix = _prefix, Limit = 1 };
        var seen = new List<string>();
        var token = "";
        do
        {
            var page = await Client.ListAsync(list, token);
            seen.AddRange(KeysOf(page));
            token = page.NextToken;
            Assert.Equal(token is null ? null : Uri.EscapeDataString(token), token);
        }
        while (token is not null);
        Assert.Equal(names, seen);
    }

    /// <summary>A node keeps a snapshot for seconds, and a person who reads a page takes longer.</summary>
    [Fact]
    public async Task Page_WhoseSnapshotIsGone_GoesOnInANewerOne_IfItMay()
    {
        await PutAllAsync("1", "2", "3", "4");
        var list = new KvList { Prefix = _prefix, Limit = 2 };
        var first = await Client.ListAsync(list);
        await Client.DeleteAsync(_prefix + "3");
        await PutAllAsync("0", "5");
        var token = OfAGoneSnapshot(first.NextToken!);
        Assert.Equal("SNAPSHOT_TOO_OLD", await Refused.ReasonOfAsync(() => Client.ListAsync(list, token)));
        var newer = list with { NewerSnapshots = true };
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.ListAsync(newer with { Prefix = _prefix + "4" }, token)));
        var second = await Client.ListAsync(newer, token);
        Assert.Equal(["4", "5"], KeysOf(second));
        Assert.True(second.Position.Etag > first.Position.Etag);
        Assert.Null(second.NextToken);
    }

    /// <summary>A page ended with its shard. Of 100 keys at a border it had one.</summary>
    [Fact]
    public async Task Page_OverABorder_IsFilledFromBothShards()
    {
        var (low, high) = await store.ClearBorderAsync();
        string[] keys = [low, low + "1", high, high + "1"];
        foreach (var key in keys)
            await Client.PutAsync(key, "v");
        foreach (var reverse in (bool[])[false, true])
        {
            var expected = reverse ? [keys[3], keys[2], keys[1], keys[0]] : keys;
            var list = new KvList { Start = low, End = "n", Reverse = reverse, Limit = 3 };
            var first = await Client.ListAsync(list);
            Assert.Equal(expected[..3], first.Entries.Select(static entry => entry.Key.ToUtf8String()));
            Assert.Equal(2, first.Positions.Count);
            Assert.NotEqual(first.Positions[0].Shard, first.Positions[1].Shard);
            Assert.Equal(first.Positions[1], first.Position);
            Assert.NotNull(first.SnapshotKeptFor);
            var last = await Client.ListAsync(list, first.NextToken);
            Assert.Equal(expected[3], Assert.Single(last.Entries).Key.ToUtf8String());
            Assert.Null(last.NextToken);

            // Full at the border: the other shard is not asked, and the next page has a snapshot of its own.
            var full = await Client.ListAsync(list with { Limit = 2 });
            Assert.Equal((2, 1), (full.Entries.Count, full.Positions.Count));
            Assert.Null(full.SnapshotKeptFor);
            var rest = await Client.ListAsync(list with { Limit = 2 }, full.NextToken);
            Assert.Equal(expected[2..], rest.Entries.Select(static entry => entry.Key.ToUtf8String()));
            Assert.Null(rest.NextToken);

            // The entries of each shard have 19 bytes, and an entry is added as long as there is one left.
            Assert.Equal(2, (await Client.ListAsync(list with { BytesMax = 19 })).Entries.Count);
            Assert.Equal(3, (await Client.ListAsync(list with { Limit = 10, BytesMax = 20 })).Entries.Count);
        }
        var behind = await Client.ListAsync(new KvList { Start = low + "2", End = "n", Limit = 1 });
        Assert.Equal(high, Assert.Single(behind.Entries).Key.ToUtf8String());
    }

    // The token of the same page with the number of a snapshot that is not kept.
    private static string OfAGoneSnapshot(string token)
    {
        var bytes = PageToken.Parse(token).ToArray();
        bytes.AsSpan(0, sizeof(ulong)).Fill(7);
        return PageToken.Of(bytes)!;
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
