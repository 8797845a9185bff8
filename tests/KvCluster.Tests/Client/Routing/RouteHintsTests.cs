using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.V1;
using static KvCluster.Tests.Client.Routing.ShardMapTests;

namespace KvCluster.Tests.Client.Routing;

/// <summary>What the map learns from a call that failed.</summary>
public sealed class RouteHintsTests
{
    [Fact]
    public void Fold_OfAFailureWithAHint_UpdatesTheMap()
    {
        using var table = NewTable();
        var refusal = CallStatus.Create(StatusCode.Unavailable, "NOT_LEADER", "Node 3 leads.", "no");
        refusal.Details.Add(Google.Protobuf.WellKnownTypes.Any.Pack(new RouteHint { Routes = { Route(1, "", "", epoch: 2, leader: 3) } }));
        RouteHints.Fold(table, refusal.ToRpcException());
        Assert.Equal(3u, table.Find("key"u8)!.Leader);
    }

    [Fact]
    public void Fold_OfAFailureWithoutAHint_KeepsTheMap()
    {
        using var table = NewTable();
        var changed = table.NextChange();
        RouteHints.Fold(table, CallStatus.Create(StatusCode.Unavailable, "BUSY", "Try again.", "no").ToRpcException());
        RouteHints.Fold(table, new RpcException(new Status(StatusCode.Unavailable, "The connection broke.")));
        Assert.False(changed.IsCompleted);
    }

    private static RouteTable NewTable()
    {
        var table = new RouteTable(ClientRuntime.Machine);
        table.TryFold(new V1.ShardMap { Cluster = "test", Complete = true, Shards = { Route(1, "", "") } }, out _);
        return table;
    }
}
