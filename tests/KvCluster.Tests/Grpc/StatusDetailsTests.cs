using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Tests.Grpc;

/// <summary>The details of errors are found by the names of their types, which are written down a second time.</summary>
public sealed class StatusDetailsTests
{
    [Fact]
    public void Details_OfEachType_AreFound()
    {
        var status = new Google.Rpc.Status
        {
            Details =
            {
                Any.Pack(new ErrorInfo { Reason = "BUSY" }),
                Any.Pack(new RetryInfo { RetryDelay = Duration.FromTimeSpan(TimeSpan.FromSeconds(1)) }),
                Any.Pack(new RouteHint { Routes = { new ShardRoute { Shard = 7 } } }),
                Any.Pack(new Compacted { Oldest = new Position { Etag = new V1.Etag { Change = 9 } } }),
            },
        };
        Assert.Equal("BUSY", StatusDetails.InfoOf(status)!.Reason);
        Assert.Equal(TimeSpan.FromSeconds(1), StatusDetails.RetryOf(status)!.RetryDelay.ToTimeSpan());
        Assert.Equal(7u, StatusDetails.HintOf(status)!.Routes.Single().Shard);
        Assert.Equal(9ul, StatusDetails.CompactedOf(status)!.Oldest.Etag.Change);
        Assert.Null(StatusDetails.HintOf(new Google.Rpc.Status { Details = { status.Details[0] } }));
    }

    [Fact]
    public void Created_HasItsInfoAsAnyoneElseWouldPackIt()
    {
        var info = StatusDetails.Info("BUSY", StatusDetails.NotApplied);
        Assert.Equal(Any.Pack(info), StatusDetails.Create(StatusCode.Unavailable, "busy", info).Details.Single());
    }

    [Fact]
    public void WithWait_HasItsTimeAsAnyoneElseWouldPackIt()
    {
        var wait = TimeSpan.FromMilliseconds(50);
        var status = StatusDetails.WithWait(StatusDetails.Create(StatusCode.Unavailable, "busy", StatusDetails.Info("BUSY", StatusDetails.NotApplied)), wait);
        Assert.Equal(Any.Pack(new RetryInfo { RetryDelay = Duration.FromTimeSpan(wait) }), status.Details[1]);
    }
}
