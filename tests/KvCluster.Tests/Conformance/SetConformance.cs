using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Sets: members in order, each once, and what sets have in common.</summary>
public abstract class SetConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Members_AreThereOnce_InOrder()
    {
        var set = _prefix + "set";
        var added = await Client.Sets.AddAsync(set, ["b", "a", "c", "b"]);
        Assert.Equal(3ul, added.Changed);
        Assert.Equal(0ul, (await Client.Sets.AddAsync(set, ["a"])).Changed);
        Assert.Equal(3ul, await Client.Sets.CountAsync(set));
        Assert.Equal(["a", "b", "c"], await MembersAsync(set));
        var removed = await Client.Sets.RemoveAsync(set, ["b", "x"]);
        Assert.Equal(1ul, removed.Changed);
        Assert.True(removed.Position.Etag > added.Position.Etag);
        Assert.Equal(["a", "c"], await MembersAsync(set));
        Assert.Equal(2ul, (await Client.Sets.RemoveAllAsync(set)).Changed);
        Assert.Equal(0ul, await Client.Sets.CountAsync(set));
        Assert.Equal(0ul, (await Client.Sets.RemoveAllAsync(set)).Changed);
        Assert.Empty(await MembersAsync(set));
    }

    [Fact]
    public async Task Set_IsNoKey()
    {
        await Client.Sets.AddAsync(_prefix + "set", ["a"]);
        Assert.False((await Client.GetAsync(_prefix + "set")).Found);
        await Client.PutAsync(_prefix + "set", "v");
        await Client.DeleteRangeAsync(new KvRange { Prefix = _prefix });
        Assert.Equal(1ul, await Client.Sets.CountAsync(_prefix + "set"));
    }

    [Fact]
    public async Task Scan_ReturnsWhatIsAskedFor()
    {
        var set = _prefix + "set";
        await Client.Sets.AddAsync(set, ["a1", "a2", "b1", "b2", "c1"]);
        Assert.Equal(["b1", "b2"], await MembersAsync(set, new KvSetScan { Prefix = "b" }));
        Assert.Equal(["a2", "b1"], await MembersAsync(set, new KvSetScan { Start = "a2", Limit = 2 }));
        Assert.Equal(["c1", "b2"], await MembersAsync(set, new KvSetScan { Reverse = true, Limit = 2 }));
        Assert.Equal(["b2", "b1"], await MembersAsync(set, new KvSetScan { Reverse = true, Prefix = "b" }));
    }

    [Fact]
    public async Task Conditions_AskForMembers()
    {
        var set = _prefix + "set";
        await Client.Sets.AddAsync(set, ["a"], KvCondition.SetLacks(set, "a"));
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.Sets.AddAsync(set, ["b"], KvCondition.SetLacks(set, "a"))));
        await Client.Sets.AddAsync(set, ["b"], KvCondition.SetHas(set, "a"));
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.PutAsync(_prefix + "k", "v", KvCondition.SetHas(set, "x"))));
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.Sets.RemoveAsync(set, ["b"], KvCondition.Exists())));
    }

    [Fact]
    public async Task Operations_OnSets_TellWhatTheyDid()
    {
        var set = _prefix + "set";
        var write = new KvWrite().WithResults();
        write.Operations.SetAdd(set, "a").SetAdd(set, "a").SetGet(set, "a").SetGet(set).SetRemove(set, "x").SetRemove(set).SetGet(set, "a");
        var results = (await Client.WriteAsync(write)).Results;
        Assert.Equal([false, true, true, null, false, null, false], results.Select(static result => result.Existed));
        Assert.Equal([1, 1, 1, 1, 1, 0, 0], results.Select(static result => result.Number ?? -1));
        Assert.NotEqual(default, results[0].Etag);
        Assert.Equal(default, results[1].Etag);
        Assert.Equal(default, results[4].Etag);
        Assert.NotEqual(default, results[5].Etag);
    }

    [Fact]
    public async Task Members_BeyondTheLimits_AreRefused()
    {
        var set = _prefix + "set";
        await Client.Sets.AddAsync(set, [new string('m', 1_024)]);
        Assert.Equal("MEMBER_TOO_LONG", await Refused.ReasonOfAsync(() => Client.Sets.AddAsync(set, [new string('m', 1_025)])));
        Assert.Equal("MEMBER_EMPTY", await Refused.ReasonOfAsync(() => Client.Sets.AddAsync(set, [default])));
        Assert.Equal("MEMBER_EMPTY", await Refused.ReasonOfAsync(() => Client.Sets.RemoveAsync(set, [default])));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.Sets.AddAsync(set, [])));
        Assert.Equal(1ul, await Client.Sets.CountAsync(set));
    }

    [Fact]
    public async Task Intersection_IsPagedAndCountedInFacets()
    {
        await Client.Sets.AddAsync(_prefix + "one", ["1", "2", "3", "4"]);
        await Client.Sets.AddAsync(_prefix + "two", ["2", "3", "4", "5"]);
        await Client.Sets.AddAsync(_prefix + "color/red", ["2", "3"]);
        await Client.Sets.AddAsync(_prefix + "color/green", ["4", "5"]);
        await Client.Sets.AddAsync(_prefix + "color/blue", ["9"]);
        var result = await Client.Sets.IntersectAsync(new KvIntersection
        {
            Keys = [_prefix + "one", _prefix + "two"], Start = "3", Limit = 1, FacetPrefixes = [_prefix + "color/"], FacetsMax = 1,
        });
        Assert.Equal("3", Assert.Single(result.Members).ToUtf8String());
        Assert.True(result.More);
        Assert.Equal(3ul, result.Count);
        var facets = Assert.Single(result.Facets);
        Assert.Equal((_prefix + "color/red", 2ul), (Assert.Single(facets.Sets).Key.ToUtf8String(), facets.Sets[0].Count));
        Assert.Equal(2ul, facets.SetsFound);
        Assert.Equal(0ul, (await Client.Sets.IntersectAsync(new KvIntersection { Keys = [_prefix + "one", _prefix + "none"] })).Count);
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.Sets.IntersectAsync(
            new KvIntersection { Keys = [.. Enumerable.Repeat((KvKey)(_prefix + "one"), 65)] })));
        var refused = await Assert.ThrowsAsync<KvShardsDifferException>(
            () => Client.Sets.IntersectAsync(new KvIntersection { Keys = [_prefix + "one", "z" + _prefix] }).AsTask());
        Assert.Equal(2, refused.Shards.Count);
    }

    private async Task<IEnumerable<string>> MembersAsync(string set, KvSetScan? scan = null) =>
        (await Client.Sets.ScanAsync(set, scan).ToListAsync()).Select(static member => member.ToUtf8String());
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemorySetTests(InMemoryStoreUnderTest store) : SetConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterSetTests(ClusterUnderTest store) : SetConformance(store);
