using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>The rules of an engine, one of them wrong.</summary>
internal sealed class FaultyRules(PlantedBug bug) : StoreRules
{
    public override bool RemembersLoss => bug != PlantedBug.LossForgotten;

    public override bool MayReport(bool isOldestDone, bool isAnyDone) => base.MayReport(isOldestDone, isAnyDone) || (bug == PlantedBug.ReportOutOfOrder && isAnyDone);

    public override Coverage RecoversFrom(PageStore pages) => bug == PlantedBug.RecycleByNewerMeta ? pages.Covered : base.RecoversFrom(pages);

    public override RecordRef PrecedesEpoch(RecordRef last, RecordRef published) => bug == PlantedBug.ReuseChangeNumber ? published : base.PrecedesEpoch(last, published);
}
