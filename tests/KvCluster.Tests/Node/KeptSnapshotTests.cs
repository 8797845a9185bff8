using KvCluster.Node.Api.Reads;
using KvCluster.Wire;

namespace KvCluster.Tests.Node;

/// <summary>
/// A later page of a list repeated the age of the first one, although its state was older by then. And nobody was told how long a snapshot is kept.
/// </summary>
public sealed class KeptSnapshotTests
{
    [Fact]
    public void ReadNow_SomeTimeAfterTheFirstAnswer_IsOlderByThat()
    {
        var time = new ManualTime();
        var kept = new KeptSnapshots.Kept(new LineageShard(new(1), 0), new OpenedRead(default, AgeUs: 250, null), time.GetTimestamp());
        Assert.Equal(250u, kept.ReadNow(time).AgeUs);
        time.Advance(TimeSpan.FromSeconds(3));
        Assert.Equal(3_000_250u, kept.ReadNow(time).AgeUs);
    }

    [Fact]
    public void ReadNow_OfAnUnknownAge_StaysUnknown()
    {
        var time = new ManualTime();
        var kept = new KeptSnapshots.Kept(new LineageShard(new(1), 0), new OpenedRead(default, AgeUs: null, null), time.GetTimestamp());
        time.Advance(TimeSpan.FromSeconds(3));
        Assert.Null(kept.ReadNow(time).AgeUs);
    }

    [Fact]
    public void TimeLeft_IsThatOfTheWait_AndAtTheEndThatOfTheAge()
    {
        var time = new ManualTime();
        using var snapshots = new KeptSnapshots(time, TimeSpan.FromMinutes(1));
        var kept = new KeptSnapshots.Kept(new LineageShard(new(1), 0), new OpenedRead(default, AgeUs: null, null), time.GetTimestamp());
        Assert.Equal(TimeSpan.FromSeconds(10), snapshots.TimeLeft(kept));
        time.Advance(TimeSpan.FromSeconds(53));
        Assert.Equal(TimeSpan.FromSeconds(7), snapshots.TimeLeft(kept));
        time.Advance(TimeSpan.FromSeconds(53));
        Assert.Equal(TimeSpan.Zero, snapshots.TimeLeft(kept));
    }
}
