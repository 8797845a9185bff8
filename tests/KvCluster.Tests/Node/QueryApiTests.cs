using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;
using Xunit.Abstractions;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Tests.Node;

/// <summary>The reads that are more than keys, as callers see them: one node, and two shards divided at "m".</summary>
public sealed class QueryApiTests(KvApiTests.OneNode fixture, ITestOutputHelper output) : IClassFixture<KvApiTests.OneNode>
{
    private readonly Kv.KvClient _kv = fixture.Cluster.KvOf(1);
    private readonly string _prefix = $"a-{Guid.NewGuid():N}/";

    [Theory]
    [InlineData("b", Nearest.Floor, "b")]
    [InlineData("c", Nearest.Floor, "b")]
    [InlineData("b", Nearest.Lower, "a")]
    [InlineData("c", Nearest.Lower, "b")]
    [InlineData("b", Nearest.Ceiling, "b")]
    [InlineData("c", Nearest.Ceiling, "d")]
    [InlineData("b", Nearest.Higher, "d")]
    [InlineData("c", Nearest.Higher, "d")]
    [InlineData("a", Nearest.Lower, null)]
    [InlineData("d", Nearest.Higher, null)]
    [InlineData("e", Nearest.Ceiling, null)]
    public async Task Get_OfTheNearestKeyWithinAPrefix_FindsIt(string key, object nearest, string? expected)
    {
        await PutAllAsync("a", "b", "d");
        var got = await _kv.GetAsync(new GetRequest { Key = Key(key), Nearest = (Nearest)nearest, Within = Utf8(_prefix) });
        Assert.Equal((expected is not null, expected is null ? "" : _prefix + expected), (got.Found, got.Key.ToStringUtf8()));
        Assert.Equal(expected ?? "", got.Value.ToStringUtf8());
        Assert.False(got.HasNextBound);
    }

    [Fact]
    public async Task Get_OfANearestKeyThatTheShardLacks_NamesTheBound()
    {
        var up = await _kv.GetAsync(new GetRequest { Key = Utf8("lzzz"), Nearest = Nearest.Higher });
        Assert.Equal((false, "m"), (up.Found, up.NextBound.ToStringUtf8()));
        var down = await _kv.GetAsync(new GetRequest { Key = Utf8("m"), Nearest = Nearest.Lower });
        Assert.Equal((false, "m"), (down.Found, down.NextBound.ToStringUtf8()));
        // A prefix that ends in the shard ends the search.
        var within = await _kv.GetAsync(new GetRequest { Key = Utf8("lzzz"), Nearest = Nearest.Higher, Within = Utf8("l") });
        Assert.False(within.HasNextBound);
    }

    [Fact]
    public async Task Count_CountsTheRangeAndSaysWhereItContinues()
    {
        await PutAllAsync("a", "b", "c");
        var count = await _kv.CountAsync(new CountRequest { Prefix = Utf8(_prefix) });
        Assert.Equal((3ul, false), (count.Count, count.HasNextStart));
        var part = await _kv.CountAsync(new CountRequest { Prefix = Utf8(_prefix), Start = Key("b"), End = Key("c") });
        Assert.Equal(1ul, part.Count);
        var all = await _kv.CountAsync(new CountRequest { Start = Key("b") });
        Assert.Equal("m", all.NextStart.ToStringUtf8());
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task List_PageByPage_IsOneSnapshotOfTheShard(bool reverse)
    {
        await PutAllAsync("a", "b", "c", "d", "e");
        var list = new ListRequest { Prefix = Utf8(_prefix), Limit = 2, Reverse = reverse };
        var first = await _kv.ListAsync(list);
        // What is written between two pages is in none of the rest.
        await PutAllAsync("bb", "cc", "f");
        await _kv.DeleteAsync(new DeleteRequest { Key = Key("c") });
        var found = first.Entries.ToList();
        for (var token = first.NextPageToken; !token.IsEmpty;)
        {
            list.PageToken = token;
            var page = await _kv.ListAsync(list);
            Assert.InRange(page.Entries.Count, 1, 2);
            Assert.Equal(first.Position.Etag, page.Position.Etag);
            found.AddRange(page.Entries);
            token = page.NextPageToken;
        }
        string[] expected = ["a", "b", "c", "d", "e"];
        Assert.Equal(reverse ? expected.Reverse() : expected, found.Select(entry => entry.Key.ToStringUtf8()[_prefix.Length..]));
    }

    [Fact]
    public async Task List_OfTwoShards_GoesOnAtTheBound()
    {
        var name = Guid.NewGuid().ToString("N");
        foreach (var key in new[] { $"l{name}", $"n{name}" })
            await _kv.PutAsync(new PutRequest { Key = Utf8(key) });
        var (found, token) = (new List<string>(), ByteString.Empty);
        do
        {
            var page = await _kv.ListAsync(new ListRequest { Start = Utf8("l"), End = Utf8("o"), PageToken = token });
            found.AddRange(page.Entries.Select(entry => entry.Key.ToStringUtf8()).Where(key => key.EndsWith(name, StringComparison.Ordinal)));
            token = page.NextPageToken;
        }
        while (!token.IsEmpty);
        Assert.Equal([$"l{name}", $"n{name}"], found);
    }

    [Fact]
    public async Task List_WhoseNextPageIsOfTheSameSnapshot_TellsHowLongThatIsKept()
    {
        await PutAllAsync("a", "b");
        var list = new ListRequest { Prefix = Utf8(_prefix), Limit = 1 };
        var first = await _kv.ListAsync(list);
        Assert.InRange(first.SnapshotKeptMs, 1u, 10_000u);
        list.PageToken = first.NextPageToken;
        Assert.False((await _kv.ListAsync(list)).HasSnapshotKeptMs);
        // The next page is of the next shard.
        var border = await _kv.ListAsync(new ListRequest { Start = Utf8("lzzz"), End = Utf8("n") });
        Assert.Equal((false, false), (border.NextPageToken.IsEmpty, border.HasSnapshotKeptMs));
    }

    /// <summary>The last page of a list released its snapshot although its answer was lost or too large for its way, and asking again was refused.</summary>
    [Fact]
    public async Task List_LastPageAskedForAgain_IsTheSame()
    {
        await PutAllAsync("a", "b", "c");
        var list = new ListRequest { Prefix = Utf8(_prefix), Limit = 2 };
        list.PageToken = (await _kv.ListAsync(list)).NextPageToken;
        var last = await _kv.ListAsync(list);
        Assert.Equal([Key("c")], last.Entries.Select(entry => entry.Key));
        Assert.Equal(last, await _kv.ListAsync(list));
    }

    [Fact]
    public async Task Write_WithTooManyConditionsOnRanges_IsRefused()
    {
        var write = new V1.WriteRequest { Operations = { new Operation { Put = new PutOperation { Key = Key("k") } } } };
        for (var condition = 0; condition <= 64; condition++)
            write.Conditions.Add(new Condition { Key = Key("k"), Range = new RangeCondition { End = Key("l"), Keys = 0 } });
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await _kv.WriteAsync(write));
        Assert.Equal("TOO_MANY_OPERATIONS", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
        write.Conditions.RemoveAt(64);
        Assert.NotNull((await _kv.WriteAsync(write)).Position);
    }

    /// <summary>Two sets of which one has the even members and the other the odd ones, so that a search for a common one goes through both.</summary>
    [Fact]
    public async Task SetIntersect_OfLargeSetsWithoutACommonMember_FindsNone()
    {
        await AddAsync("even", [.. Enumerable.Range(0, 8_000).Select(member => $"{member * 2:000000}")]);
        await AddAsync("odd", [.. Enumerable.Range(0, 8_000).Select(member => $"{(member * 2) + 1:000000}")]);
        var found = await _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { Key("even"), Key("odd") }, Limit = 10 });
        Assert.Equal((0ul, 0), (found.Count, found.Members.Count));
        await AddAsync("odd", ["015998"]);
        Assert.Equal("015998", (await _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { Key("even"), Key("odd") }, Limit = 10 })).Members
            .Single().ToStringUtf8());
    }

    [Fact]
    public async Task List_WithATokenThatIsNotKept_IsTold()
    {
        await PutAllAsync("a", "b", "c");
        var first = await _kv.ListAsync(new ListRequest { Prefix = Utf8(_prefix), Limit = 1 });
        var forged = ByteString.CopyFrom([1, 2, 3, 4, 5, 6, 7, 8, .. first.NextPageToken.Span[8..]]);
        await AssertRefusedAsync(new ListRequest { Prefix = Utf8(_prefix), PageToken = forged }, StatusCode.Aborted, "SNAPSHOT_TOO_OLD");
        await AssertRefusedAsync(new ListRequest { PageToken = Utf8("short") }, StatusCode.InvalidArgument, "BAD_REQUEST");
        // It would go on at a key that is before this range, or return keys twice.
        foreach (var other in (ListRequest[])[new() { Prefix = Key("b") },
            new() { Prefix = Utf8(_prefix), Reverse = true }, new() { Prefix = Utf8(_prefix), KeysOnly = true }, new()])
        {
            other.PageToken = first.NextPageToken;
            await AssertRefusedAsync(other, StatusCode.InvalidArgument, "BAD_REQUEST");
        }
        await AssertRefusedAsync(new ListRequest { Limit = 10_001 }, StatusCode.InvalidArgument, "BAD_REQUEST");
        var second = await _kv.ListAsync(new ListRequest { Prefix = Utf8(_prefix), Limit = 1, PageToken = first.NextPageToken });
        Assert.Equal(Key("b"), second.Entries.Single().Key);
    }

    /// <summary>
    /// A caller that pauses between two pages goes on, if it says that a newer snapshot will do. The pages after that one are from one snapshot again.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task List_WithATokenThatIsNotKept_GoesOnInANewerSnapshot_IfAskedTo(bool isReverse)
    {
        await PutAllAsync("a", "b", "c", "d");
        string[] order = isReverse ? ["d", "c", "b", "a"] : ["a", "b", "c", "d"];
        var list = new ListRequest { Prefix = Utf8(_prefix), Limit = 1, Reverse = isReverse, NewerSnapshot = true };
        var first = await _kv.ListAsync(list);
        Assert.Equal(Key(order[0]), first.Entries.Single().Key);
        await PutAllAsync(order[1]);
        list.PageToken = ByteString.CopyFrom([1, 2, 3, 4, 5, 6, 7, 8, .. first.NextPageToken.Span[8..]]);
        var second = await _kv.ListAsync(list);
        Assert.Equal(Key(order[1]), second.Entries.Single().Key);
        Assert.True(second.Position.Etag.Change > first.Position.Etag.Change);
        list.PageToken = second.NextPageToken;
        list.NewerSnapshot = false;
        list.Limit = 10;
        var rest = await _kv.ListAsync(list);
        Assert.Equal([Key(order[2]), Key(order[3])], rest.Entries.Select(static entry => entry.Key));
        Assert.Equal(second.Position.Etag, rest.Position.Etag);
    }

    [Fact]
    public async Task Scan_WithALimitOfBytes_EndsAtIt()
    {
        await PutAllAsync("a", "b", "c");
        var pages = _kv.Scan(new ScanRequest { Prefix = Utf8(_prefix), BytesMax = (ulong)_prefix.Length + 3 }).ResponseStream;
        var keys = new List<string>();
        while (await pages.MoveNext(CancellationToken.None))
            keys.AddRange(pages.Current.Entries.Select(entry => entry.Key.ToStringUtf8()));
        // The first entry takes the prefix and two bytes, and one byte is left for the second.
        Assert.Equal([_prefix + "a", _prefix + "b"], keys);
    }

    [Fact]
    public async Task Scan_AfterItsStreamBroke_ContinuesInTheSameSnapshot()
    {
        var value = ByteString.CopyFrom(new byte[60_000]);
        for (var key = 0; key < 40; key++)
            await _kv.PutAsync(new PutRequest { Key = Key($"{key:00}"), Value = value });
        var request = new ScanRequest { Prefix = Utf8(_prefix) };
        var keys = new List<ByteString>();
        V1.Position position;
        using (var broken = _kv.Scan(request))
        {
            Assert.True(await broken.ResponseStream.MoveNext(CancellationToken.None));
            request.Snapshot = broken.ResponseStream.Current.Snapshot;
            position = broken.ResponseStream.Current.Position;
            keys.AddRange(broken.ResponseStream.Current.Entries.Select(entry => entry.Key));
        }
        await PutAllAsync("00-later", "39-later");
        request.ResumeAfter = keys[^1];
        // The node learns that the stream broke a moment later.
        var rest = await Eventually.AnsweredAsync(async () => await ReadAllAsync(request), failure => failure.StatusCode == StatusCode.Aborted);
        Assert.All(rest, page => Assert.Equal(position.Etag, page.Position.Etag));
        keys.AddRange(rest.SelectMany(page => page.Entries).Select(entry => entry.Key));
        Assert.Equal(Enumerable.Range(0, 40).Select(key => Key($"{key:00}")), keys);
    }

    [Theory]
    [InlineData(3)]
    [InlineData(4_000)]
    public async Task SetScan_PageByPage_ReturnsTheMembersInOrder(int members)
    {
        string[] names = [.. Enumerable.Range(0, members).Select(member => $"{member:000000}-{new string('x', member % 7)}")];
        await AddAsync("s", names);
        var found = new List<string>();
        for (var request = new SetScanRequest { Key = Key("s"), Limit = 999 }; ;)
        {
            var page = await _kv.SetScanAsync(request);
            Assert.Equal((ulong)members, page.Count);
            found.AddRange(page.Members.Select(member => member.ToStringUtf8()));
            if (!page.More)
                break;
            request.ResumeAfter = page.Members[^1];
        }
        Assert.Equal(names, found);
        Assert.Equal((ulong)members, (await _kv.SetCountAsync(new SetCountRequest { Key = Key("s") })).Count);
        var last = await _kv.SetScanAsync(new SetScanRequest { Key = Key("s"), Reverse = true, Limit = 2 });
        Assert.Equal(names.Reverse().Take(2), last.Members.Select(member => member.ToStringUtf8()));
        var before = await _kv.SetScanAsync(new SetScanRequest { Key = Key("s"), Reverse = true, ResumeAfter = Utf8(names[1]) });
        Assert.Equal([names[0]], before.Members.Select(member => member.ToStringUtf8()));
        var one = await _kv.SetScanAsync(new SetScanRequest { Key = Key("s"), Prefix = Utf8("000002") });
        Assert.Equal([names[2]], one.Members.Select(member => member.ToStringUtf8()));
    }

    [Fact]
    public async Task SetCount_OfASetThatDoesNotExist_IsZeroWithoutEtag()
    {
        var count = await _kv.SetCountAsync(new SetCountRequest { Key = Key("none") });
        Assert.Equal((0ul, true), (count.Count, count.Etag is null));
        Assert.Empty((await _kv.SetScanAsync(new SetScanRequest { Key = Key("none") })).Members);
    }

    /// <summary>Sets of all sizes, so that small ones and trees meet as the smallest, as the others and as facets.</summary>
    [Fact]
    public async Task SetIntersect_OfRandomSets_IsThatOfAModel()
    {
        var random = Seeds.Next(output);
        var model = new Dictionary<string, SortedSet<string>>(StringComparer.Ordinal);
        foreach (var (name, size) in new[] { ("x/1", 3), ("x/2", 40), ("x/3", 600), ("x/4", 3_000), ("x/5", 5_000), ("x/6", 1) })
        {
            // Common heads, and members that begin with others.
            model[name] = new(
                Enumerable.Range(0, size).Select(_ => $"package-{random.Next(6_000)}{(random.Next(4) == 0 ? "-dev" : "")}"), StringComparer.Ordinal);
            await AddAsync(name, [.. model[name]]);
        }
        for (var round = 0; round < 20; round++)
        {
            string[] names = [.. model.Keys.OrderBy(_ => random.Next()).Take(random.Next(1, 4))];
            var expected = names.Select(name => (IEnumerable<string>)model[name])
                .Aggregate((left, right) => left.Intersect(right, StringComparer.Ordinal)).Order(StringComparer.Ordinal).ToList();
            var start = random.Next(3) == 0 ? "package-3" : "";
            var request =
                new SetIntersectRequest { Keys = { names.Select(Key) }, Limit = 50, Start = Utf8(start), FacetPrefixes = { Key("x/") }, FacetsMax = 3 };
            var found = await _kv.SetIntersectAsync(request);
            var page = expected.Where(member => string.CompareOrdinal(member, start) >= 0).Take(50);
            Assert.True(found.Count == (ulong)expected.Count && found.Members.Select(member => member.ToStringUtf8()).SequenceEqual(page), $"round {round}: "
                + $"{string.Join(" and ", names)}");
            Assert.Equal(expected.Count(member => string.CompareOrdinal(member, start) >= 0) > 50, found.More);
            var facets = model.Select(set => (Name: _prefix + set.Key, Count: (ulong)set.Value.Intersect(expected, StringComparer.Ordinal).Count()))
                .Where(facet => facet.Count > 0).ToList();
            Assert.Equal((ulong)facets.Count, found.Facets.Single().SetsFound);
            Assert.Equal(
                facets.OrderByDescending(facet => facet.Count).Take(3), found.Facets.Single().Sets.Select(facet => (facet.Key.ToStringUtf8(), facet.Count)));
        }
    }

    // One prefix named sixteen times made an answer of 320 MiB, which was refused as too large for its way, and asked for again for ever.
    [Fact]
    public async Task SetIntersect_WithFacetsOfMoreThanAnAnswer_IsRefusedWithTheReason()
    {
        await AddAsync("common", ["m"]);
        var longest = new string('f', KvLimits.KeyBytesMax - _prefix.Length - 10);
        for (var set = 0; set < 200; set++)
            await AddAsync($"f/{longest}{set:d4}", ["m"]);
        var request = new SetIntersectRequest { Keys = { Key("common") }, FacetPrefixes = { Enumerable.Repeat(Key("f/"), 16) }, FacetsMax = 10_000 };
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await _kv.SetIntersectAsync(request));
        Assert.Equal((StatusCode.ResourceExhausted, "ANSWER_TOO_LARGE"), (failure.StatusCode, failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason));
        request.FacetsMax = 100;
        var found = await _kv.SetIntersectAsync(request);
        Assert.All(found.Facets, facets => Assert.Equal((100, 200ul), (facets.Sets.Count, facets.SetsFound)));
        // Among equals in the order of their keys.
        Assert.Equal(
            found.Facets[0].Sets.Select(facet => facet.Key.ToStringUtf8()).Order(StringComparer.Ordinal).First(), found.Facets[0].Sets[0].Key.ToStringUtf8());
        Assert.EndsWith("0099", found.Facets[15].Sets[99].Key.ToStringUtf8());
    }

    [Fact]
    public async Task SetIntersect_OfTwoShards_IsRefused()
    {
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { Utf8("a"), Utf8("z") } }));
        Assert.Equal("SHARDS_DIFFER", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
        var facets = await Assert.ThrowsAsync<RpcException>(
            async () => await _kv.SetIntersectAsync(new SetIntersectRequest { Keys = { Utf8("a") }, FacetPrefixes = { Utf8("z") } }));
        Assert.Equal("SHARDS_DIFFER", facets.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
    }

    private static ByteString Utf8(string text) => ByteString.CopyFromUtf8(text);

    private ByteString Key(string name) => Utf8(_prefix + name);

    private async Task PutAllAsync(params string[] names)
    {
        foreach (var name in names)
            await _kv.PutAsync(new PutRequest { Key = Key(name), Value = Utf8(name) });
    }

    private async Task AddAsync(string name, string[] members)
    {
        var replica = fixture.Cluster.ShardsOf(1).Find(Key(name).Span)!.Replica!;
        foreach (var chunk in members.Chunk(1_000))
        {
            var write = WriteRequest.Rent();
            foreach (var member in chunk)
                write.SetAdd(Key(name).Span, Utf8(member).Span);
            Assert.Equal(KvCluster.Storage.Sessions.WriteOutcome.Applied, (await replica.Writes.SubmitAsync(write)).Outcome);
        }
    }

    private async Task<List<ScanPage>> ReadAllAsync(ScanRequest request)
    {
        var pages = new List<ScanPage>();
        using var stream = _kv.Scan(request);
        while (await stream.ResponseStream.MoveNext(CancellationToken.None))
            pages.Add(stream.ResponseStream.Current);
        return pages;
    }

    private Task AssertRefusedAsync(ListRequest request, StatusCode code, string reason) =>
        Refusal.ExpectAsync(async () => await _kv.ListAsync(request), code, reason);
}
