using KvCluster.Storage;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>The rules of an engine, one of them wrong.</summary>
internal sealed class FaultyRules(PlantedBug bug) : StoreRules
{
    public override bool RemembersLoss => bug != PlantedBug.LossForgotten;

    public override bool MayReport(Queue<JournalWrite> writes) => base.MayReport(writes) || (bug == PlantedBug.ReportOutOfOrder && writes.Any(static write => write.IsDone));

    public override Coverage RecoversFrom(PageStore pages) => bug == PlantedBug.RecycleByNewerMeta ? pages.Covered : base.RecoversFrom(pages);

    public override RecordRef PrecedesEpoch(RecordRef last, RecordRef published) => bug == PlantedBug.ReuseChangeNumber ? published : base.PrecedesEpoch(last, published);
}
