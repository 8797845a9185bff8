using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation;

/// <summary>The rules of the protocol, with one of them wrong.</summary>
internal sealed class FaultyReplicaRules(InjectedBug bug) : ReplicaRules
{
    public override bool MayCountRecovering => bug == InjectedBug.RecoveringCounts;

    public override bool ServesBeforeOpen => bug == InjectedBug.ServeBeforeOpen;

    public override Etag CommittedUnmatched(IJournalView journal, Etag leaderCommitted) =>
        bug == InjectedBug.CommitBeforeMatch && journal.TryFindAtOrBefore(leaderCommitted, out var unmatched) ? unmatched.Etag
            : base.CommittedUnmatched(journal, leaderCommitted);

    public override LogPosition CutTo(IJournalView journal, LogPosition common, Etag committed) =>
        bug == InjectedBug.CutToCommitted && journal.TryFind(committed, out var record) ? record.Name : base.CutTo(journal, common, committed);

    public override bool IsCommon(ulong truncationEpoch, ulong promised) => bug == InjectedBug.MatchAfterForeignCut || base.IsCommon(truncationEpoch, promised);

    // A snapshot that is already installed is ignored, or the code would send it to itself without end.
    public override bool IsOvertaken(IJournalView journal, LogPosition covers, Etag committed) =>
        bug == InjectedBug.SnapshotOverNewer ? covers.Etag == committed : base.IsOvertaken(journal, covers, committed);

    public override Etag CommittedByCount(Etag agreedOfOlderEpoch) =>
        bug == InjectedBug.CommitOlderEpoch ? agreedOfOlderEpoch : base.CommittedByCount(agreedOfOlderEpoch);

    public override Quorum Committing(Quorum voters, ShardView view) =>
        bug == InjectedBug.LearnerCounts ? new Quorum([.. view.Record.Replicas.Select(static replica => replica.ReplicaId)]) : base.Committing(voters, view);

    public override Quorum WhileChanging(Quorum before, Quorum after) => bug switch
    {
        InjectedBug.ChangeWithoutBarrier => after,
        InjectedBug.AckByStaleRecord => before,
        _ => base.WhileChanging(before, after),
    };
}
