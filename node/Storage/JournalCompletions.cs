using KvCluster.Storage.Context;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Threads;

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
    private readonly HeldPosts? _looks;
    private readonly Action _report;
    private readonly IWorkItem _look;
    private readonly Func<IWorkItem?> _takeLook;
    private IStoreEvents? _events;

    /// <summary>Reports nothing before <see cref="Start"/>.</summary>
    /// <param name="life">Nothing follows when the store has ended. A failure ends it.</param>
    /// <param name="journal">May have failed.</param>
    /// <param name="durable">Takes what is done.</param>
    /// <param name="writes">May append the next batch.</param>
    /// <param name="checkpoints">May cover more.</param>
    /// <param name="memory">Tells what the journal uses.</param>
    /// <param name="space">Looks for space if there was none.</param>
    /// <param name="looks">Holds what is looked at until the end of a pass; null: it is looked at after each report.</param>
    public JournalCompletions(
        StoreLifecycle life, JournalWriter journal, DurableRecords durable, GroupCommit writes,
        CheckpointSchedule checkpoints, StoreMemory memory, FullDiskWatch space, HeldPosts? looks)
    {
        (_life, _journal, _durable, _writes, _checkpoints, _memory, _space) = (life, journal, durable, writes, checkpoints, memory, space);
        _looks = looks;
        _report = Report;
        _look = life.Guarded(Look);
        _takeLook = () => _look;
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
        var mayWait = _writes.MayWait;
        _durable.Report(_events!);
        if (_journal.Failure is { } failure)
            _life.Fail(failure);
        else if (mayWait)
            _writes.TellWork();
        _memory.Changed();
        if (_looks is null)
            Look();
        else
            _looks.Hold(_takeLook);
    }

    private void Look()
    {
        _memory.ObserveIfChanged();
        _checkpoints.StartIfDue();
        _space.Watch();
    }
}
