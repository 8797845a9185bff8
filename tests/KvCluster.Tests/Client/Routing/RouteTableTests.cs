using System.Text;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.V1;
using Xunit.Abstractions;
using ShardMap = KvCluster.Client.Routing.ShardMap;
using static KvCluster.Tests.Client.Routing.ShardMapTests;

namespace KvCluster.Tests.Client.Routing;

/// <summary>Which entry wins when maps and hints of several nodes arrive in any order.</summary>
public sealed class RouteTableTests(ITestOutputHelper output)
{
    /// <summary>Known (generation, epoch, leader), offered (generation, epoch, leader), and whether the offered one replaces it.</summary>
    public static TheoryData<(ulong Generation, ulong Epoch, uint Leader), (ulong Generation, ulong Epoch, uint Leader), bool> Table => new()
    {
        { (1, 1, 1), (1, 2, 2), true },
        { (1, 2, 2), (1, 1, 1), false },
        { (1, 5, 1), (2, 1, 2), true },
        { (2, 1, 1), (1, 9, 2), false },
        { (1, 2, 0), (1, 2, 3), true },
        { (1, 2, 3), (1, 2, 0), false },
        { (1, 2, 3), (1, 2, 3), false },
        { (1, 2, 3), (1, 3, 0), true },
    };

    [Theory]
    [MemberData(nameof(Table))]
    public void Fold_OfAHint_TakesTheGreaterGenerationThenEpoch(
        (ulong Generation, ulong Epoch, uint Leader) known, (ulong Generation, ulong Epoch, uint Leader) offered, bool replaces)
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(Map(Route(1, "", "", known.Epoch, known.Leader, known.Generation)), out _);
        var changed = table.NextChange();
        Assert.Equal(replaces, table.Fold(new RouteHint { Routes = { Route(1, "", "", offered.Epoch, offered.Leader, offered.Generation) } }));
        Assert.Equal(replaces, changed.IsCompleted);
        Assert.Equal(replaces ? offered.Leader : known.Leader, table.Find("key"u8)!.Leader);
        Assert.Equal(replaces ? 1 : 0, table.Counts.Stale);
    }

    [Fact]
    public void Fold_OfANewLeader_KeepsTheMap()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(Map(Route(1, "", "m/"), Route(2, "m/", "")), out _);
        table.Find("n/a"u8);
        var map = table.Map;
        table.Fold(new RouteHint { Routes = { Route(2, "m/", "", epoch: 2, leader: 3) } });
        Assert.Same(map, table.Map);
        Assert.Equal(3u, table.Find("n/b"u8)!.Leader);
    }

    /// <summary>A call finds its key once, and may wait long before it is sent.</summary>
    [Fact]
    public void Find_OfAKeyThatWasFound_HasTheNewestRoute_AndSearchesAgainOnlyIfTheRangesHaveChanged()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        Assert.Null(table.Find("n"u8, default));
        table.TryFold(Map(Route(1, "", "m"), Route(2, "m", "")), out _);
        var found = table.PlaceOf("n"u8);
        Assert.Equal((2u, true), (found.Shard.Value, table.IsCurrent(found)));
        table.Fold(new RouteHint { Routes = { Route(2, "m", "", epoch: 2, leader: 3) } });
        var searches = table.Counts.Hits + table.Counts.Misses;
        Assert.Equal(3u, table.Find("n"u8, found)!.Leader);
        Assert.Equal(searches, table.Counts.Hits + table.Counts.Misses);
        table.Fold(new RouteHint { Routes = { Route(2, "m", "n", generation: 2), Route(3, "n", "", leader: 2) } });
        Assert.Equal((3u, false), (table.Find("n"u8, found)!.Shard, table.IsCurrent(found)));
    }

    [Fact]
    public void Fold_OfASplit_RoutesBothHalves()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(Map(Route(1, "", "")), out _);
        Assert.True(table.Fold(new RouteHint { Routes = { Route(1, "", "m", generation: 2), Route(2, "m", "", leader: 2) } }));
        Assert.Equal(1u, table.Find("l"u8)!.Shard);
        Assert.Equal(2u, table.Find("m"u8)!.Shard);
    }

    [Fact]
    public void Fold_OfAWholeMap_RemovesShardsAndNodesThatItDoesNotName()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        var first = Map(Route(1, "", "m"), Route(2, "m", ""));
        first.Nodes.Add(new NodeAddress { Node = 7, Address = "http://gone" });
        table.TryFold(first, out _);
        table.TryFold(Map(Route(1, "", "", generation: 2)), out _);
        Assert.Equal(1u, table.Find("z"u8)!.Shard);
        Assert.Empty(table.Nodes);
    }

    [Fact]
    public void Fold_OfTheSameMapAgain_IsNoChange()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(Map(Route(1, "", "")), out _);
        var changed = table.NextChange();
        table.TryFold(Map(Route(1, "", "")), out _);
        Assert.False(changed.IsCompleted);
    }

    /// <summary>A client with endpoints of two clusters merged their maps, and keys of one cluster were written into the other.</summary>
    [Fact]
    public void TryFold_OfAnotherClustersMap_ChangesNothingAndReportsIt()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        var (ours, others) = (Map(Route(1, "", "")), Map(Route(1, "", "", generation: 9, leader: 9)));
        (ours.ClusterId, others.ClusterId) = ("a1", "b2");
        Assert.True(table.TryFold(ours, out _));
        Assert.False(table.TryFold(others, out var foreign));
        Assert.Equal("it belongs to cluster 'test' (b2), but other endpoints belong to 'test' (a1)", foreign);
        Assert.Equal((1ul, "a1"), (table.Find("k"u8)!.Generation, table.ClusterId));
    }

    /// <summary>A change takes the order of the routes from the map before it. It must end with what sorting all of them gives.</summary>
    [Fact]
    public void Fold_OfManySplitsMergesAndLeaders_GivesTheMapOfAllRoutes()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 30; round++)
        {
            using var table = new RouteTable(ClientRuntime.Machine);
            var routes = new List<ShardRoute> { Route(1, "", "") };
            table.TryFold(Map([.. routes]), out _);
            for (var change = 0; change < 60; change++)
            {
                var (changed, isMerge) = Change(random, routes, (uint)change + 2);
                // Hints cannot say that a shard is gone. Complete maps do not name it any more.
                if (isMerge || random.Next(3) == 0)
                    Assert.True(table.TryFold(Map([.. routes.OrderBy(_ => random.Next())]), out _));
                else
                    Assert.True(table.Fold(new RouteHint { Routes = { changed } }));
                Assert.Equal(new ShardMap(routes).Routes, table.Map.Routes);
                foreach (var route in routes)
                    Assert.Same(route, table.Find(route.Start.Span));
            }
        }
    }

    /// <summary>Callers route without a lock while the ranges change. Each finds a shard that has, or had, its key.</summary>
    [Fact]
    public async Task Find_WhileRangesChange_FindsAShardOfTheKey()
    {
        var random = Seeds.Next(output);
        using var table = new RouteTable(ClientRuntime.Machine);
        var routes = Enumerable.Range(0, 500)
            .Select(shard => Route((uint)shard + 1, shard == 0 ? "" : $"k{shard:000}/", shard == 499 ? "" : $"k{shard + 1:000}/")).ToList();
        table.TryFold(Map([.. routes]), out _);
        using var changed = new CancellationTokenSource();
        var callers = Enumerable.Range(0, 3).Select(caller => Task.Run(() => RouteUntil(caller, changed.Token))).ToArray();
        for (var change = 0; change < 300; change++)
        {
            Change(random, routes, (uint)change + 1_000);
            table.TryFold(Map([.. routes]), out _);
        }
        await changed.CancelAsync();
        Assert.All(await Task.WhenAll(callers), static routed => Assert.True(routed > 0));

        long RouteUntil(int caller, CancellationToken end)
        {
            var (routed, order) = (0L, new Random(caller));
            do
            {
                // In order and in no order.
                var number = routed % 2_000 < 1_000 ? (int)(routed % 500) : order.Next(500);
                var key = Encoding.UTF8.GetBytes($"k{number:000}/{routed % 7}");
                var route = table.Find(key)!;
                Assert.True(route.Start.Span.SequenceCompareTo(key) <= 0 && (route.End.IsEmpty || route.End.Span.SequenceCompareTo(key) > 0), $"{route} has no "
                    + $"key {number}");
                routed++;
            }
            while (!end.IsCancellationRequested);
            return routed;
        }
    }

    // Splits a shard, merges it with the next one, or gives it another leader.
    private static (ShardRoute[] Changed, bool IsMerge) Change(Random random, List<ShardRoute> routes, uint unused)
    {
        var index = random.Next(routes.Count);
        var route = routes[index];
        var kind = random.Next(4);
        if (kind == 0)
        {
            routes[index] = new(route) { Epoch = route.Epoch + 1, Leader = route.Leader + 1 };
            return ([routes[index]], false);
        }
        if (kind == 1 && index + 1 < routes.Count)
        {
            routes[index] = new(route) { End = routes[index + 1].End, Generation = route.Generation + 1 };
            routes.RemoveAt(index + 1);
            return ([routes[index]], true);
        }
        var middle = ByteString.CopyFrom([.. route.Start.Span, (byte)random.Next(1, 3)]);
        if (!route.End.IsEmpty && middle.Span.SequenceCompareTo(route.End.Span) >= 0)
            return Change(random, routes, unused);
        routes[index] = new(route) { End = middle, Generation = route.Generation + 1 };
        routes.Insert(index + 1, new(route) { Shard = unused, Start = middle });
        return ([routes[index], routes[index + 1]], false);
    }

    private static V1.ShardMap Map(params ShardRoute[] routes) => new() { Cluster = "test", Complete = true, Shards = { routes } };
}
