using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Context;

/// <summary>
/// Told what a store does, by those who measure and trace it; this one takes no notice. Calls come on the threads that did the work, must not block
/// and must not throw. Nothing is timed while <see cref="IsWatching"/> is false.
/// </summary>
internal class StoreObserver
{
    /// <summary>Takes no notice.</summary>
    public static readonly StoreObserver None = new();

    /// <summary>Whether somebody wants to know. Any thread; may change at any time.</summary>
    public virtual bool IsWatching => false;

    /// <summary>A merged transaction became a record, which is handed to the journal next. Writer executor.</summary>
    /// <param name="record">The record.</param>
    /// <param name="operationCount">Operations in it.</param>
    /// <param name="waited">How long the first of its requests had waited; zero: not known.</param>
    /// <param name="traces">What <c>WriteRequest.Trace</c> of its requests held, where it was not null. Valid during the call.</param>
    public virtual void Appended(RecordRef record, int operationCount, TimeSpan waited, IReadOnlyList<object> traces)
    {
    }

    /// <summary>Records are on stable storage that left in one write. A journal lane's executor.</summary>
    /// <param name="first">The first of them.</param>
    /// <param name="last">The last of them.</param>
    /// <param name="bytes">Bytes written.</param>
    /// <param name="took">From handing them to the disk until they were durable.</param>
    public virtual void JournalWritten(RecordRef first, RecordRef last, int bytes, TimeSpan took)
    {
    }

    /// <summary>A checkpoint is complete. Writer executor.</summary>
    /// <param name="bytes">Bytes of tree pages written, each of them changed since the checkpoint before.</param>
    /// <param name="took">From its beginning, rests included.</param>
    public virtual void CheckpointWritten(long bytes, TimeSpan took)
    {
    }
}
