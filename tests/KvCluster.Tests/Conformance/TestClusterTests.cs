using System.Diagnostics;
using KvCluster.Client;
using KvCluster.Testing;
using Xunit.Abstractions;

namespace KvCluster.Tests.Conformance;

/// <summary>The cluster that tests of programs start in their process.</summary>
public sealed class TestClusterTests(ITestOutputHelper output)
{
    [Fact]
    public async Task Cluster_WithoutOptions_ServesAsSoonAsItHasStarted()
    {
        var began = Stopwatch.GetTimestamp();
        await using var cluster = await KvTestCluster.StartAsync();
        output.WriteLine($"started in {Stopwatch.GetElapsedTime(began).TotalMilliseconds:0} ms");
        await using var client = cluster.Connect(static options => options.Timeout = Eventually.Limit);
        await client.PutAsync("a", "v", KvCondition.Absent());
        Assert.Equal("v", (await client.GetAsync("a")).Value.ToUtf8String());
        Assert.Single(cluster.Endpoints);
    }

    [Fact]
    public Task Cluster_OfThreeNodes_GoesOnWithoutEachOfThem() => GoesOnAsync(handOver: false);

    [Fact]
    [Trait("Turn", "4")]
    public Task Cluster_OfThreeNodes_GoesOnAfterEachHasHandedOver() => GoesOnAsync(handOver: true);

    [Fact]
    public async Task Options_ThatAreInvalid_AreRefused()
    {
        await Assert.ThrowsAsync<ArgumentException>(() => KvTestCluster.StartAsync(new KvTestClusterOptions { Nodes = 0 }));
        await Assert.ThrowsAsync<ArgumentException>(() => KvTestCluster.StartAsync(new KvTestClusterOptions { ShardBounds = ["m", "m"] }));
    }

    private static async Task GoesOnAsync(bool handOver)
    {
        await using var cluster = await KvTestCluster.StartAsync(new KvTestClusterOptions { Nodes = 3, ShardBounds = ["m"] });
        await using var client = cluster.Connect(static options => options.Timeout = Eventually.Limit);
        // The leaders of both shards are among them.
        for (var node = 1; node <= 3; node++)
        {
            await cluster.StopNodeAsync(node, handOver);
            await client.PutAsync("a", $"{node}");
            await client.PutAsync("z", $"{node}");
            await cluster.StartNodeAsync(node);
            Assert.Equal($"{node}", (await client.GetAsync("a")).Value.ToUtf8String());
        }
        await Assert.ThrowsAsync<InvalidOperationException>(() => cluster.StartNodeAsync(1));
        await Assert.ThrowsAsync<ArgumentOutOfRangeException>(() => cluster.StopNodeAsync(4));
    }
}
