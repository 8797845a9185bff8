using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Context;

/// <summary>
/// Decisions of the engine without which it would seem to work until something fails: these are the right ones. The simulation hands in others, one of them wrong,
/// to prove that it would notice (<see cref="StoreContext.Rules"/>); nobody else derives from it. Asked once a write of the journal, a checkpoint, an epoch or an
/// opening, never once an operation; on the executor of whoever asks.
/// </summary>
internal class StoreRules
{
    /// <summary>The engine's own.</summary>
    public static StoreRules Own { get; } = new();

    /// <summary>Whether the oldest of the journal's writes, of which there is one, may be reported: what is reported is durable with all before it.</summary>
    public virtual bool MayReport(bool isOldestDone, bool isAnyDone) => isOldestDone;

    /// <summary>The checkpoint from which a recovery may have to begin: the newer meta page may turn out to be damaged.</summary>
    public virtual CheckpointPosition RecoversFrom(PageStore pages) => pages.CoveredByOlderMeta;

    /// <summary>Whether the control file must say, before anything buries what shows it, that the journal has lost something.</summary>
    public virtual bool RemembersLoss => true;

    /// <summary>The record that an epoch's first one follows, and from whose change it counts on: the last one of the journal, committed or not.</summary>
    /// <param name="last">The journal's last.</param>
    /// <param name="published">The last one that is committed.</param>
    public virtual RecordRef PrecedesEpoch(RecordRef last, RecordRef published) => last;
}
