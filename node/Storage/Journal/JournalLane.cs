using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// One of the writes that a journal may have in flight, on an executor of its own. What it does next <see cref="JournalWriter"/> decides, under whose
/// lock the state here is.
/// </summary>
internal sealed class JournalLane(ISerialExecutor executor, Action<JournalLane> run) : IWorkItem
{
    /// <summary>Posted, and not begun.</summary>
    public bool IsPosted { get; set; }

    /// <summary>At work.</summary>
    public bool IsRunning { get; set; }

    /// <summary>Its last step was a write: a step towards the next segment comes first, if one is needed.</summary>
    public bool HasWritten { get; set; }

    /// <summary>The write that it is at.</summary>
    public JournalWrite? Write { get; set; }

    /// <summary>That write found no room.</summary>
    public bool FoundNoRoom { get; set; }

    /// <inheritdoc cref="ISerialExecutor.IsIdle"/>
    public bool HasIdleExecutor => executor.IsIdle;

    /// <summary>Sets it to work.</summary>
    public void Post() => executor.Post(this);

    /// <inheritdoc/>
    public void Execute() => run(this);
}

/// <summary>What a <see cref="JournalLane"/> does next.</summary>
internal enum JournalStep
{
    /// <summary>Nothing.</summary>
    None,

    /// <summary>Write <see cref="JournalLane.Write"/>, beside whatever the other lanes do.</summary>
    Write,

    /// <summary>A step towards the next segment, beside writes into the current one.</summary>
    Fill,

    /// <summary>The job that is next, with nothing else in flight.</summary>
    Alone,
}
