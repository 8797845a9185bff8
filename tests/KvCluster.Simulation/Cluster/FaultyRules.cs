using KvCluster.Node.Shards;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>The rules of an engine, with one of them wrong.</summary>
internal sealed class FaultyRules(InjectedBug bug) : StoreRules
{
    public override bool RemembersLoss => bug != InjectedBug.LossForgotten;

    public override bool MayReport(bool isOldestDone, bool isAnyDone) =>
        base.MayReport(isOldestDone, isAnyDone) || (bug == InjectedBug.ReportOutOfOrder && isAnyDone);

    public override CheckpointPosition RecoversFrom(PageStore pages) => bug == InjectedBug.RecycleByNewerMeta ? pages.Covered : base.RecoversFrom(pages);

    public override RecordRef PrecedesEpoch(RecordRef last, RecordRef published) =>
        bug == InjectedBug.ReuseChangeNumber ? published : base.PrecedesEpoch(last, published);
}

/// <summary>The rules of a shard's driver, with one of them wrong.</summary>
internal sealed class FaultyShardRules(InjectedBug bug) : ShardRules
{
    public override bool AnswersConditionsWithoutLease => bug == InjectedBug.ConditionWithoutLease;

    public override bool Ends(Exception failure) => bug != InjectedBug.UnreadableUntold || failure is not UnreadableRecordException;
}
