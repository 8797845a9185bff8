using KvCluster.Node.Api.Reads;
using KvCluster.Wire;

namespace KvCluster.Tests.Node;

/// <summary>A later page of a list repeated the age of the first one, although its state was older by then.</summary>
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
}
