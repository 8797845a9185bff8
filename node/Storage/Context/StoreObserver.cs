namespace KvCluster.Storage.Context;

/// <summary>
/// Receives what a store does, for measuring and tracing; this base class ignores it. Calls come on the threads that did the work. They must not block or
/// throw. Nothing but checkpoints, which are rare, is timed while <see cref="IsWatching"/> is false.
/// </summary>
internal class StoreObserver
{
    /// <summary>Ignores everything.</summary>
    public static readonly StoreObserver None = new();

    /// <summary>Whether anybody is observing. Any thread; may change at any time.</summary>
    public virtual bool IsWatching => false;

    /// <summary>A merged transaction became a record, which is passed to the journal next. Writer executor.</summary>
    /// <param name="record">The record.</param>
    /// <param name="operationCount">Operations in it.</param>
    /// <param name="waited">How long the first of its requests had waited; zero if unknown.</param>
    /// <param name="traces">The values of <c>WriteRequest.Trace</c> of its requests that were not null. Valid during the call.</param>
    public virtual void Appended(RecordRef record, int operationCount, TimeSpan waited, IReadOnlyList<object> traces)
    {
    }

    /// <summary>Records that were written with one write are durable. A journal lane's executor.</summary>
    /// <param name="first">The first of them.</param>
    /// <param name="last">The last of them.</param>
    /// <param name="bytes">Bytes written.</param>
    /// <param name="took">The time from submitting them to the disk until they were durable.</param>
    public virtual void JournalWritten(RecordRef first, RecordRef last, int bytes, TimeSpan took)
    {
    }

    /// <summary>Keys expire in the record that is being made. Writer executor.</summary>
    /// <param name="keys">How many.</param>
    /// <param name="late">How late the first of them does, by shard time.</param>
    public virtual void Expired(int keys, TimeSpan late)
    {
    }

    /// <summary>Sessions end in the record that is being made, because no KeepAlive came. Writer executor.</summary>
    /// <param name="sessions">How many.</param>
    public virtual void SessionsEnded(int sessions)
    {
    }

    /// <summary>A checkpoint is complete. Writer executor.</summary>
    /// <param name="bytes">Bytes of tree pages written; all of these pages changed since the previous checkpoint.</param>
    /// <param name="took">The time since it began, including pauses.</param>
    public virtual void CheckpointWritten(long bytes, TimeSpan took)
    {
    }
}
