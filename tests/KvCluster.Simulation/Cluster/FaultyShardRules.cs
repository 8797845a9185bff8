using KvCluster.Node.Shards;
using KvCluster.Storage.Journal;

namespace KvCluster.Simulation.Cluster;

/// <summary>The rules of a shard's driver, one of them wrong.</summary>
internal sealed class FaultyShardRules(InjectedBug bug) : ShardRules
{
    public override bool AnswersConditionsWithoutLease => bug == InjectedBug.ConditionWithoutLease;

    public override bool Ends(Exception failure) => bug != InjectedBug.UnreadableUntold || failure is not UnreadableRecordException;
}
