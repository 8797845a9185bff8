using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.V1;
using static KvCluster.Tests.Client.Routing.ShardMapTests;

namespace KvCluster.Tests.Client.Routing;

/// <summary>Which entry wins when maps and hints of several nodes arrive in any order.</summary>
public sealed class RouteTableTests
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
    public void Fold_OfANewLeader_KeepsRangesAndCacheEntries()
    {
        using var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(Map(Route(1, "", "m/"), Route(2, "m/", "")), out _);
        table.Find("n/a"u8);
        var map = table.Map;
        table.Fold(new RouteHint { Routes = { Route(2, "m/", "", epoch: 2, leader: 3) } });
        Assert.Same(map, table.Map);
        Assert.Equal(3u, table.Find("n/b"u8)!.Leader);
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

    private static V1.ShardMap Map(params ShardRoute[] routes) => new() { Cluster = "test", Complete = true, Shards = { routes } };
}
