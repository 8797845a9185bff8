using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation;

/// <summary>The rules of the protocol, one of them wrong.</summary>
internal sealed class FaultyReplicaRules(PlantedBug bug) : ReplicaRules
{
    public override bool MayCountRefilling => bug == PlantedBug.RefillingCounts;

    public override bool ServesBeforeOpen => bug == PlantedBug.ServeBeforeOpen;

    public override Etag CommittedUnmatched(IJournalView journal, Etag leaderCommitted) =>
        bug == PlantedBug.CommitBeforeMatch && journal.TryFindAtOrBefore(leaderCommitted, out var unmatched) ? unmatched.Etag : base.CommittedUnmatched(journal, leaderCommitted);

    public override RecordName CutTo(IJournalView journal, RecordName common, Etag committed) =>
        bug == PlantedBug.CutToCommitted && journal.TryFind(committed, out var record) ? record.Name : base.CutTo(journal, common, committed);

    public override bool IsCommon(ulong epochOfCut, ulong promised) => bug == PlantedBug.MatchAfterForeignCut || base.IsCommon(epochOfCut, promised);

    // One that was installed already is let be, or the code would send itself the same one without end.
    public override bool IsOvertaken(IJournalView journal, RecordName covers, Etag committed) =>
        bug == PlantedBug.SnapshotOverNewer ? covers.Etag == committed : base.IsOvertaken(journal, covers, committed);

    public override Etag CommittedByCount(Etag agreedOfOlderEpoch) => bug == PlantedBug.CommitOlderEpoch ? agreedOfOlderEpoch : base.CommittedByCount(agreedOfOlderEpoch);

    public override Quorum Committing(Quorum voters, ShardView view) =>
        bug == PlantedBug.LearnerCounts ? new Quorum([.. view.Record.Replicas.Select(static replica => replica.Replica)]) : base.Committing(voters, view);

    public override Quorum WhileChanging(Quorum before, Quorum after) => bug switch
    {
        PlantedBug.ChangeWithoutBarrier => after,
        PlantedBug.AckByStaleRecord => before,
        _ => base.WhileChanging(before, after),
    };
}
