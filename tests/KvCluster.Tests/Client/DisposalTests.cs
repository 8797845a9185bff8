using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>
/// A client is closed at once, or with the end of its sessions. A container of services that is disposed without waiting refused clients that could only be
/// disposed by waiting.
/// </summary>
public sealed class DisposalTests
{
    [Fact]
    public async Task Dispose_LeavesTheSessionsToTheCluster()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var client = cluster.Connect();
        await client.PutAsync("a", "1");
        client.Dispose();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.PutAsync("a", "2").AsTask());
        // Also if it is disposed again, which waits until everything is closed.
        await client.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
        client.Dispose();
        Assert.Single(cluster.Results);
        Assert.Equal(1, cluster.Applied["a"]);
    }

    [Fact]
    public async Task Dispose_WhileACallIsInProgress_FailsItAndWaitsForNothing()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static call => Task.FromResult(call.Method == Method.Get ? FakeNode.Silence : null);
        var client = cluster.Connect();
        var reading = client.GetAsync("k").AsTask();
        await Eventually.TrueAsync(() => !cluster.Nodes[0].Calls.IsEmpty, "the call has arrived");
        client.Dispose();
        Assert.Equal("CLIENT_CLOSED", (await Assert.ThrowsAsync<KvUnavailableException>(() => reading.WaitAsync(Eventually.Limit))).Reason);
    }

    [Fact]
    public async Task Dispose_OfAClientThatMadeNoCall_EndsItsLoops()
    {
        var client = new KvClient("http://127.0.0.1:1");
        client.Dispose();
        await client.DisposeAsync().AsTask().WaitAsync(Eventually.Limit);
    }
}
