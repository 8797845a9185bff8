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
        TimeSpan? waited = null;
        using (var pool = new OccupiedPool())
        {
            Assert.True(probe.TryQueue());
            Assert.True(probe.IsQueued);
            Assert.False(SpinWait.SpinUntil(() => probe.Take() is not null, 300));
            Assert.True(pool.IsFull, "The pool was not occupied for the whole time.");
        }
        Assert.True(SpinWait.SpinUntil(() => (waited = probe.Take()) is not null, Eventually.Limit));
        Assert.True(waited >= TimeSpan.FromMilliseconds(250));
        Assert.False(probe.IsQueued);
    }

    // An idle node queued one every 50 ms, and each woke a thread that slept.
    [Fact]
    public void TryQueue_WhileNothingWaits_DoesNotQueueIt()
    {
        var probe = new PoolProbe();
        Assert.True(SpinWait.SpinUntil(() => !Queues(probe), Eventually.Limit), "Something waits in the pool all the time.");
        Assert.False(probe.IsQueued);
    }

    // The pool of the tests has a little work of its own.
    private static bool Queues(PoolProbe probe)
    {
        if (!probe.TryQueue())
            return false;
        Assert.True(SpinWait.SpinUntil(() => probe.Take() is not null, Eventually.Limit));
        return true;
    }
}
