using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// One of the writes that a journal may have in flight, on its own executor. <see cref="JournalWriter"/> decides what it does next; its lock protects the
/// state here.
/// </summary>
internal sealed class JournalLane(ISerialExecutor executor, Action<JournalLane> run) : IWorkItem
{
    /// <summary>Posted, but not started.</summary>
    public bool IsPosted { get; set; }

    /// <summary>Running a step.</summary>
    public bool IsRunning { get; set; }

    /// <summary>Its last step was a write. If the next segment needs preparation, a step of that comes first.</summary>
    public bool HasWritten { get; set; }

    /// <summary>The write it is executing.</summary>
    public JournalWrite? Write { get; set; }

    /// <summary>That write found no space.</summary>
    public bool FoundNoRoom { get; set; }

    /// <inheritdoc cref="ISerialExecutor.IsIdle"/>
    public bool HasIdleExecutor => executor.IsIdle;

    /// <summary>Posts it to its executor.</summary>
    public void Post() => executor.Post(this);

    /// <inheritdoc/>
    public void Execute() => run(this);
}

/// <summary>What a <see cref="JournalLane"/> does next.</summary>
internal enum JournalStep
{
    /// <summary>Nothing.</summary>
    None,

    /// <summary>Execute <see cref="JournalLane.Write"/>, concurrently with whatever the other lanes do.</summary>
    Write,

    /// <summary>A step in preparing the next segment, concurrently with writes into the current one.</summary>
    Fill,

    /// <summary>Execute the next job, with nothing else in flight.</summary>
    Alone,
}
