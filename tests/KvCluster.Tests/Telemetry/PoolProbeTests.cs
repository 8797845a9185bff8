using KvCluster.Node.Telemetry;

namespace KvCluster.Tests.Telemetry;

/// <summary>How a node sees that its thread pool runs nothing. Tests that use the pool could not run beside this one.</summary>
[Collection(AloneCollection.Name)]
public sealed class PoolProbeTests
{
    // Two of Kestrel's loops occupied both threads of a busy node's pool for two seconds. Nothing was received or sent, the shard was lost, and
    // nothing was reported.
    [Fact]
    public void Probe_BehindItemsThatOccupyEveryThread_ReportsHowLongItWaited()
    {
        var probe = new PoolProbe();
        using (var pool = new OccupiedPool())
        {
            probe.Queue();
            Assert.False(SpinWait.SpinUntil(() => probe.Waited is not null, 300));
            Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
        }
        Assert.True(SpinWait.SpinUntil(() => probe.Waited is not null, Eventually.Limit));
        Assert.True(probe.Waited >= TimeSpan.FromMilliseconds(250));
    }
}
