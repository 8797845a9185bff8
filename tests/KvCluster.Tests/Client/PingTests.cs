using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>A ping is answered by the leader of the first shard, or says why it is not.</summary>
public sealed class PingTests
{
    [Fact]
    public async Task Ping_IsAnsweredByTheLeaderOfTheFirstShard()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "m");
        cluster.Lead(1, node: 2);
        // Also of a client whose reads are answered by any replica.
        await using var client = cluster.Connect(KvReadMode.Stale);
        Assert.True(await client.PingAsync() > TimeSpan.Zero);
        var call = Assert.Single(cluster.Nodes[1].Calls);
        Assert.Equal(Method.Get, call.Method);
        Assert.True((GetRequest.Parser.ParseFrom(call.Request).Read?.Mode ?? ReadMode.Unspecified).IsForLeader());
    }

    [Fact]
    public async Task Ping_WithoutALeader_FailsWithTheReason()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(300) });
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER"));
        // On a busy machine the connection may not be there in time.
        await Eventually.TrueAsync(async () =>
        {
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.PingAsync().AsTask());
            return failure.Reason == "NO_LEADER" && failure.Message.Contains("refused", StringComparison.Ordinal);
        }, "the ping fails for the reason that the node names");
    }

    [Fact]
    public async Task Ping_WhileALeaderIsElected_WaitsForIt()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        var refused = 0;
        cluster.Nodes[0].Script = call =>
            Task.FromResult(Interlocked.Increment(ref refused) <= 3 ? FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER") : null);
        await client.PingAsync();
        Assert.Equal(4, refused);
    }

    [Fact]
    public async Task Ping_WhoseCallerGivesUp_IsCancelled()
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = ["http://127.0.0.1:1"], Timeout = Eventually.Limit });
        using var stop = new CancellationTokenSource(TimeSpan.FromMilliseconds(100));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.PingAsync(stop.Token).AsTask());
    }
}
