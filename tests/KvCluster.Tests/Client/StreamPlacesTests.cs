using Grpc.Core;
using Grpc.Core.Interceptors;
using KvCluster.Client.Transport;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Client;

/// <summary>Streams of one kind to one address, up to their limit.</summary>
public sealed class StreamPlacesTests
{
    [Fact]
    public async Task Stream_BeyondTheLimit_IsBusyUntilAnotherOneEnds()
    {
        await using var server = await EchoServer.StartAsync();
        var client = new Echo.EchoClient(server.Channel.Intercept(new StreamPlaces("watches", 2)));
        using var first = client.ServerStream(new EchoRequest { ReplyCount = 1 });
        var second = client.ServerStream(new EchoRequest { ReplyCount = 1 });
        using (var third = client.ServerStream(new EchoRequest { ReplyCount = 1 }))
        {
            var refused = await Assert.ThrowsAsync<RpcException>(() => third.ResponseStream.MoveNext(CancellationToken.None));
            Assert.Equal((StatusCode.Unavailable, "BUSY"), (refused.StatusCode, CallStatus.ReasonOf(refused.GetRpcStatus()!)));
            Assert.Contains("2 watches", refused.Status.Detail, StringComparison.Ordinal);
        }
        second.Dispose();
        second.Dispose();
        using var fourth = client.ServerStream(new EchoRequest { ReplyCount = 1 });
        Assert.True(await fourth.ResponseStream.MoveNext(CancellationToken.None));
        using var fifth = client.ServerStream(new EchoRequest { ReplyCount = 1 });
        await Assert.ThrowsAsync<RpcException>(() => fifth.ResponseStream.MoveNext(CancellationToken.None));
    }
}
