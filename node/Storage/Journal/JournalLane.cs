using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Takes one step of the journal at a time, such as one of the writes that may be in flight, on its own executor. <see cref="JournalSchedule"/> decides what it
/// does next and changes it under its lock; <see cref="JournalWriter"/> executes that. While a step runs, nothing here changes.
/// </summary>
internal sealed class JournalLane(ISerialExecutor executor, Action<JournalLane> run) : IWorkItem
{
    /// <summary>What the lane does.</summary>
    public LaneState State { get; private set; }

    /// <summary>Whether the last step was a write. If the next segment needs preparation, a step of that comes before the next write.</summary>
    public bool HasWritten { get; private set; }

    /// <summary>Whether its executor has it.</summary>
    public bool IsBusy => State != LaneState.Idle;

    /// <summary>The write of the state <see cref="LaneState.Writing"/>.</summary>
    public DurableWrite? Write { get; private set; }

    /// <summary>The job of the states <see cref="LaneState.Rolling"/> and <see cref="LaneState.Exclusive"/>.</summary>
    public JournalJob? Job { get; private set; }

    /// <inheritdoc cref="ISerialExecutor.IsIdle"/>
    public bool HasIdleExecutor => executor.IsIdle;

    /// <summary>Moves to a state that needs neither a write nor a job.</summary>
    public void MoveTo(LaneState next) => MoveTo(next, null, null);

    /// <summary>Begins a write.</summary>
    public void BeginWrite(DurableWrite write) => MoveTo(LaneState.Writing, write, null);

    /// <summary>Begins an exclusive step.</summary>
    public void BeginExclusive(LaneState step, JournalJob job) => MoveTo(step, null, job);

    /// <summary>Ends whatever it does, after a failure between two steps.</summary>
    public void Abandon() => (State, Write, Job) = (LaneState.Idle, null, null);

    /// <summary>Its executor.</summary>
    public ISerialExecutor Executor => executor;

    /// <summary>Posts it to its executor.</summary>
    public void Post() => executor.Post(this);

    /// <inheritdoc/>
    public void Execute() => run(this);

    private void MoveTo(LaneState next, DurableWrite? write, JournalJob? job)
    {
        Invariant.Check(MayMove(State, next), $"A journal lane went from {State} to {next}.");
        Invariant.Check(
            (write is not null) == (next == LaneState.Writing) && (job is not null) == (next is LaneState.Rolling or LaneState.Exclusive),
            $"A journal lane went to {next} with the wrong work.");
        HasWritten = next == LaneState.Between && State == LaneState.Writing;
        (State, Write, Job) = (next, write, job);
    }

    private static bool MayMove(LaneState from, LaneState to) => from switch
    {
        LaneState.Idle => to == LaneState.Posted,
        LaneState.Posted or LaneState.Between => to is not (LaneState.Posted or LaneState.Between),
        _ => to == LaneState.Between,
    };
}

/// <summary>What a <see cref="JournalLane"/> does. A lane that was posted takes steps until it finds none, with <see cref="Between"/> after each.</summary>
internal enum LaneState
{
    /// <summary>Nothing.</summary>
    Idle,

    /// <summary>The lane's executor has it, but has not started.</summary>
    Posted,

    /// <summary>A step has ended; the lane chooses the next.</summary>
    Between,

    /// <summary>The lane executes <see cref="JournalLane.Write"/>, concurrently with whatever the other lanes do.</summary>
    Writing,

    /// <summary>A step in preparing the next segment, concurrently with writes into the current one.</summary>
    Filling,

    /// <summary>The lane moves to a segment with space for the next record, <see cref="JournalLane.Job"/>, with nothing else in flight.</summary>
    Rolling,

    /// <summary>The lane executes <see cref="JournalLane.Job"/>, with nothing else in flight.</summary>
    Exclusive,
}
