namespace KvCluster.Storage.Threads;

/// <summary>Work for an <see cref="ISerialExecutor"/>. An item may be posted again while it is queued or runs; it then runs again.</summary>
internal interface IWorkItem
{
    /// <summary>Does it. Must not throw: what fails is kept by the item's owner, and an escaped exception ends the process.</summary>
    void Execute();
}
