using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;

namespace KvCluster.Storage;

/// <summary>
/// What follows when the journal's lanes have completed writes: the owner is told what is durable, and whatever waited for that begins. Owned by a store;
/// runs on the writer executor.
/// </summary>
internal sealed class JournalCompletions
{
    private readonly StoreLifecycle _life;
    private readonly JournalWriter _journal;
    private readonly DurableRecords _durable;
    private readonly GroupCommit _writes;
    private readonly CheckpointSchedule _checkpoints;
    private readonly StoreMemory _memory;
    private readonly FullDiskWatch _space;
    private readonly Action _report;
    private IStoreEvents? _events;

    /// <summary>Reports nothing before <see cref="Start"/>.</summary>
    /// <param name="life">Nothing follows when the store has ended. A failure ends it.</param>
    /// <param name="journal">May have failed.</param>
    /// <param name="durable">Takes what is done.</param>
    /// <param name="writes">May append the next batch.</param>
    /// <param name="checkpoints">May cover more.</param>
    /// <param name="memory">Tells what the journal uses.</param>
    /// <param name="space">Looks for space if there was none.</param>
    public JournalCompletions(
        StoreLifecycle life, JournalWriter journal, DurableRecords durable, GroupCommit writes,
        CheckpointSchedule checkpoints, StoreMemory memory, FullDiskWatch space)
    {
        (_life, _journal, _durable, _writes, _checkpoints, _memory, _space) = (life, journal, durable, writes, checkpoints, memory, space);
        _report = Report;
    }

    /// <summary>Sets the owner, once.</summary>
    public void Start(IStoreEvents events) => _events = events;

    /// <summary>Called when the journal has something to report.</summary>
    public void Take()
    {
        _journal.Completed.Acknowledge();
        _life.Guard(_report);
    }

    private void Report()
    {
        _durable.Report(_events!);
        if (_journal.Failure is { } failure)
            _life.Fail(failure);
        else
            // Requests that gathered while the writer was behind may be told here first.
            _writes.TellWork();
        _memory.Observe();
        _checkpoints.StartIfDue();
        _space.Watch();
    }
}
