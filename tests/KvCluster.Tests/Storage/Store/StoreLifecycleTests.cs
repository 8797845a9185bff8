using KvCluster.Storage.Context;
using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Storage.Store;

/// <summary>The phases of a store, by every way into every phase.</summary>
public sealed class StoreLifecycleTests
{
    private static readonly InvalidDataException Reason = new("a page");

    [Fact]
    public void EveryChange_InEveryPhase_GoesToTheNextPhaseOrIsRefused()
    {
        foreach (var phase in Enum.GetValues<StorePhase>())
        {
            var (failed, told) = (In(phase), In(phase));
            Assert.Equal(phase == StorePhase.Open, failed.TryFail(new InvalidDataException("another page")));
            Assert.Equal(phase == StorePhase.Open ? StorePhase.Failed : phase, failed.Phase);
            Assert.Equal(phase < StorePhase.Stopping, told.TryStop());
            Assert.Equal(phase < StorePhase.Stopping ? StorePhase.Stopping : phase, told.Phase);
            foreach (var next in Enum.GetValues<StorePhase>())
                Advance(phase, next);
        }
    }

    [Fact]
    public void Failure_OfAStoreThatIsClosedLater_StaysTheFirst()
    {
        var life = In(StorePhase.Failed);
        Assert.False(life.TryFail(new InvalidDataException("another page")));
        Assert.True(life.TryStop());
        foreach (var next in (StorePhase[])[StorePhase.Stopped, StorePhase.Quiet, StorePhase.Closed])
            life.Advance(next);
        Assert.Same(Reason, life.Failure);
        Assert.Null(In(StorePhase.Closed).Failure);
    }

    // Reports of threads that make no progress named the lambda that a step was wrapped in.
    [Fact]
    public void Guarded_HasTheNameOfItsMethodAndEndsTheStoreWithItsFailure()
    {
        var life = new StoreLifecycle();
        var work = life.Guarded(ThrowReason);
        Assert.Equal($"{nameof(StoreLifecycleTests)}.{nameof(ThrowReason)}", work.ToString());
        Assert.Equal(new WorkAction(ThrowReason).ToString(), work.ToString());
        work.Execute();
        Assert.Same(Reason, life.Failure);
    }

    private static void ThrowReason() => throw Reason;

    private static void Advance(StorePhase phase, StorePhase next)
    {
        var life = In(phase);
        if (phase >= StorePhase.Stopping && next == phase + 1)
        {
            life.Advance(next);
            Assert.Equal(next, life.Phase);
            return;
        }
        Assert.Throws<InvariantException>(() => life.Advance(next));
        Assert.Equal(phase, life.Phase);
    }

    private static StoreLifecycle In(StorePhase phase)
    {
        var life = new StoreLifecycle();
        if (phase == StorePhase.Failed)
            Assert.True(life.TryFail(Reason));
        if (phase >= StorePhase.Stopping)
            Assert.True(life.TryStop());
        while (life.Phase < phase)
            life.Advance(life.Phase + 1);
        Assert.Equal(phase == StorePhase.Open, !life.HasEnded);
        Assert.Equal(phase >= StorePhase.Stopped, life.IsStopped);
        return life;
    }
}
