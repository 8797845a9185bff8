using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;

namespace KvCluster.Storage;

/// <summary>
/// What follows when the journal's lanes have completed writes: the owner is told what is durable, and whatever waited for that begins. Owned by a store;
/// runs on the writer executor.
/// </summary>
/// <param name="life">Nothing follows when the store has ended.</param>
/// <param name="journal">May have failed.</param>
/// <param name="durable">Takes what is done.</param>
/// <param name="writes">May append the next batch.</param>
/// <param name="checkpoints">May cover more.</param>
/// <param name="memory">Tells what the journal uses.</param>
/// <param name="space">Looks for space if there was none.</param>
internal sealed class JournalCompletions(
    StoreLifecycle life, JournalWriter journal, DurableRecords durable, GroupCommit writes, CheckpointSchedule checkpoints, StoreMemory memory, SpaceWatch space)
{
    private IStoreEvents? _events;

    /// <summary>Sets the owner, once.</summary>
    public void Start(IStoreEvents events) => _events = events;

    /// <summary>Called when the journal has something to report.</summary>
    public void Take()
    {
        journal.Completed.Acknowledge();
        if (life.HasEnded)
            return;
        var couldAppend = writes.CanAppend;
        durable.Report(_events!);
        if (journal.Failure is { } failure)
            life.Fail(failure);
        else if (!couldAppend)
            writes.TellWork();
        memory.Observe();
        checkpoints.StartIfDue();
        space.Watch();
    }
}
