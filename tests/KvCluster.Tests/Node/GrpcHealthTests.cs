using Grpc.Core;
using Grpc.Health.V1;
using KvCluster.Admin.V1;
using ServingStatus = Grpc.Health.V1.HealthCheckResponse.Types.ServingStatus;

namespace KvCluster.Tests.Node;

/// <summary>What a node answers to those who ask over gRPC whether it serves.</summary>
public sealed class GrpcHealthTests
{
    /// <summary>It said that it serves from the start to the stop, so balancers that ask over gRPC sent calls to a node that drained.</summary>
    [Fact]
    public async Task Node_ThatIsReady_ServesUntilItDrains()
    {
        await using var cluster = await NodeCluster.StartAsync(3);
        // A follower has nothing to give away before it drains.
        var node = (await cluster.LeaderOfAsync(0) % 3) + 1;
        using var watch = new Health.HealthClient(cluster.ChannelOf(node).Calls()).Watch(new HealthCheckRequest());
        await UntilAsync(watch, ServingStatus.Serving);
        await cluster.AdminOf(node).DrainAsync(new DrainRequest { Node = node, Draining = true, Force = true });
        await UntilAsync(watch, ServingStatus.NotServing);
        await cluster.AdminOf(node).DrainAsync(new DrainRequest { Node = node, Draining = false });
        await UntilAsync(watch, ServingStatus.Serving);
    }

    private static async Task UntilAsync(AsyncServerStreamingCall<HealthCheckResponse> watch, ServingStatus expected)
    {
        do
            Assert.True(await watch.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
        while (watch.ResponseStream.Current.Status != expected);
    }
}
