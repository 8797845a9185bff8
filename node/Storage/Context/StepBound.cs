using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Context;

/// <summary>
/// Whether a step of the writer has taken enough: time (<see cref="StoreOptions.StepTimeMax"/>), or reads of pages (<see cref="StoreOptions.StepReadsMax"/>).
/// The step ends then, and what is left follows in another one, with heartbeats and the thread's other shards in between. Writer executor.
/// </summary>
/// <param name="time">The clock.</param>
/// <param name="options">The bounds.</param>
internal readonly struct StepBound(TimeProvider time, StoreOptions options)
{
    private readonly long _reads = PageSpace.ReadsOfThread;

    /// <summary>When the step began.</summary>
    public long Began { get; } = time.GetTimestamp();

    /// <summary>Whether the step has read enough pages. Costs next to nothing.</summary>
    public bool HasReadEnough => PageSpace.ReadsOfThread - _reads >= options.StepReadsMax;

    /// <summary>Whether the step took long enough. Looks at the clock.</summary>
    public bool TookLongEnough => time.GetElapsedTime(Began) >= options.StepTimeMax;
}
