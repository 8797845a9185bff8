using KvCluster.Replication.Progress;

namespace KvCluster.Tests.Replication;

/// <summary>Walks the whole table of follower states. Every row is repeated here, and every pair has a row.</summary>
public sealed class FollowerTransitionsTests
{
    private static readonly FollowerState[] AfterProbe =
        [FollowerState.Replicate,
            FollowerState.Probe, FollowerState.Snapshot, FollowerState.Probe, FollowerState.Probe, FollowerState.Probe, FollowerState.Probe];

    private static readonly FollowerState[] AfterReplicate =
        [FollowerState.Replicate,
            FollowerState.Probe, FollowerState.Snapshot, FollowerState.Probe, FollowerState.Probe, FollowerState.Replicate, FollowerState.Replicate];

    private static readonly FollowerState[] AfterSnapshot =
        [FollowerState.Snapshot,
            FollowerState.Snapshot, FollowerState.Snapshot, FollowerState.Snapshot, FollowerState.Probe, FollowerState.Probe, FollowerState.Probe];

    [Fact]
    public void Next_EveryStateAndSignal_HasItsRow()
    {
        var signals = Enum.GetValues<FollowerSignal>();
        foreach (var (state, after) in new[] { (FollowerState.Probe, AfterProbe),
            (FollowerState.Replicate, AfterReplicate), (FollowerState.Snapshot, AfterSnapshot) })
        {
            Assert.Equal(signals.Length, after.Length);
            foreach (var signal in signals)
                Assert.Equal(after[(int)signal], FollowerTransitions.Next(state, signal));
        }

        Assert.Equal(3, Enum.GetValues<FollowerState>().Length);
    }

    [Fact]
    public void Next_UnknownSignal_IsABug() =>
        Assert.Throws<InvariantException>(() => FollowerTransitions.Next(FollowerState.Probe, (FollowerSignal)99));
}
