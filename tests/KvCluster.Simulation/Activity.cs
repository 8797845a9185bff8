namespace KvCluster.Simulation;

/// <summary>How much happened in one run or in many.</summary>
internal readonly record struct Activity(
    long Writes, long Reads, long Scans, long FailedConditions, long Epochs, long Snapshots, long Transfers, long ReplicaChanges, long FollowerReads,
    long Repeats, long DigestsCompared, long Unapplied, long SetParts = 0, long Watched = 0)
{
    public static Activity operator +(Activity left, Activity right) => new(
        left.Writes + right.Writes,
        left.Reads + right.Reads,
        left.Scans + right.Scans,
        left.FailedConditions + right.FailedConditions,
        left.Epochs + right.Epochs,
        left.Snapshots + right.Snapshots,
        left.Transfers + right.Transfers,
        left.ReplicaChanges + right.ReplicaChanges,
        left.FollowerReads + right.FollowerReads,
        left.Repeats + right.Repeats,
        left.DigestsCompared + right.DigestsCompared,
        left.Unapplied + right.Unapplied,
        left.SetParts + right.SetParts,
        left.Watched + right.Watched);

    public override string ToString() =>
        $"{Writes} acknowledged writes, {Reads} reads, {Scans} scans, {FailedConditions} failed conditions, {Epochs} epochs, {Snapshots} snapshots installed, "
        + $"{Transfers} leaderships transferred, {ReplicaChanges} changes of replicas, {FollowerReads} reads at followers, {Repeats} answers given again, "
        + $"{DigestsCompared} comparisons of digests, {Unapplied} replicas stopped at a record, {SetParts} parts of sets deleted, {Watched} events watched";
}
