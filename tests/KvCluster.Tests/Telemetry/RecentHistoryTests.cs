using KvCluster.Node.Telemetry;
using KvCluster.Tests.Node;
using KvCluster.V1;

namespace KvCluster.Tests.Telemetry;

/// <summary>The last fifteen minutes that a node keeps.</summary>
public sealed class RecentHistoryTests
{
    [Theory]
    [InlineData(0, 0, 0)]
    [InlineData(1, 1, 0)]
    [InlineData(180, 180, 0)]
    [InlineData(181, 180, 1)]
    [InlineData(500, 180, 320)]
    public void Tell_AfterSamples_HasTheNewestOnesOldestFirst(int added, int kept, int first)
    {
        var history = new RecentHistory();
        for (var number = 0; number < added; number++)
            history.Add(Sample(number));

        var told = history.Tell();

        Assert.Equal(Enumerable.Range(first, kept).Select(static number => (long)number), told.UnixUs);
        Assert.Equal(Enumerable.Range(first, kept).Select(static number => 2 * (ulong)number), told.LagChanges);
    }

    /// <summary>Every list of the message is filled, so that none is shifted against the others.</summary>
    [Fact]
    public void Tell_OfOneSample_HasOneValueInEachList()
    {
        var history = new RecentHistory();
        history.Add(Sample(7));

        Assert.All(NodeHistory.Descriptor.Fields.InFieldNumberOrder(), field => Assert.Single(
            (System.Collections.IEnumerable)field.Accessor.GetValue(history.Tell())));
    }

    [Fact]
    public void Take_TellsTheCallsSinceTheLastTime()
    {
        var activity = new RecentActivity(TimeProvider.System);
        activity.Take(isAlwaysMeasured: false);
        for (var call = 0; call < 99; call++)
            activity.Answered(isRead: true, TimeSpan.FromMicroseconds(75));
        activity.Answered(isRead: true, TimeSpan.FromMinutes(1));
        activity.Answered(isRead: false, TimeSpan.FromMilliseconds(2));

        var calls = activity.Take(isAlwaysMeasured: false);

        Assert.Equal((100L, 1L), (calls.Reads.Count, calls.Writes.Count));
        // Between 50 and 100 us, and between 1 and 2.5 ms.
        Assert.InRange(calls.Reads.P50Us, 50, 100);
        Assert.Equal(100, calls.Reads.P99Us);
        Assert.InRange(calls.Writes.P50Us, 1_000, 2_500);
        Assert.Equal(new DurationsTold(0, 0, 0), activity.Take(isAlwaysMeasured: false).Reads);
    }

    [Fact]
    public void Take_OfCallsBeyondTheLastBucket_TellsItsBound()
    {
        var activity = new RecentActivity(TimeProvider.System);
        activity.Answered(isRead: false, TimeSpan.FromMinutes(1));

        Assert.Equal(new DurationsTold(1, 10_000_000, 10_000_000), activity.Take(isAlwaysMeasured: true).Writes);
    }

    /// <summary>Calls are counted only while they are measured, so their rate is that of this time.</summary>
    [Fact]
    public void Take_WithoutMeasuring_TellsThatNoTimeWasMeasured()
    {
        var activity = new RecentActivity(TimeProvider.System);
        Assert.Equal(0, activity.Take(isAlwaysMeasured: false).MeasuredUs);

        activity.Measure(60_000);
        activity.Measure(1_000);

        Assert.True(activity.IsWatched);
        // Of the minute only what has passed.
        Assert.InRange(activity.Take(isAlwaysMeasured: false).MeasuredUs, 0, 59_000_000);
    }

    [Fact]
    public async Task Status_WithHistory_HasASampleOfARunningNode()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        var client = new V1.Cluster.ClusterClient(cluster.ChannelOf(1).Calls());
        NodeHistory? history = null;
        await Eventually.TrueAsync(
            async () => (history = (await client.GetStatusAsync(new GetStatusRequest { History = true })).Nodes[0].History).UnixUs.Count > 0,
            "there is a sample");

        Assert.True(history!.DiskFreeBytes[0] > 0);
        Assert.Null((await client.GetStatusAsync(new GetStatusRequest())).Nodes[0].History);
    }

    private static HistorySample Sample(int number) => new()
    {
        UnixUs = number,
        Calls = default,
        LagChanges = 2 * number,
        Memory = default,
        DiskUsedBytes = 0,
        DiskFreeBytes = 0,
        Checkpoints = 0,
        CheckpointBytes = 0,
    };
}
