using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Context;

/// <summary>
/// Decisions of the engine that matter only when something fails; these are the right ones. The simulation passes variants with one wrong decision, to
/// prove that it would notice (<see cref="StoreContext.Rules"/>). There are no other subclasses. Called once per journal write, checkpoint, epoch or open,
/// never per operation, on the caller's executor.
/// </summary>
internal class StoreRules
{
    /// <summary>The engine's own rules.</summary>
    public static StoreRules Own { get; } = new();

    /// <summary>Whether the oldest unreported write of the journal may be reported. A reported write is durable together with all before it.</summary>
    public virtual bool MayReport(bool isOldestDone, bool isAnyDone) => isOldestDone;

    /// <summary>The checkpoint from which a recovery may have to start: the older one, since the newer meta page may turn out to be damaged.</summary>
    public virtual CheckpointPosition RecoversFrom(PageStore pages) => pages.CoveredByOlderMeta;

    /// <summary>Whether a loss in the journal must be recorded in the control file before anything hides the evidence.</summary>
    public virtual bool RemembersLoss => true;

    /// <summary>
    /// The predecessor of an epoch's first record, whose change number that record continues: the last record of the journal, committed or not.
    /// </summary>
    /// <param name="last">The last record of the journal.</param>
    /// <param name="published">The last committed record.</param>
    public virtual RecordRef PrecedesEpoch(RecordRef last, RecordRef published) => last;
}
