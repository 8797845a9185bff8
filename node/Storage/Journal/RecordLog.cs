using KvCluster.Storage.Context;
using KvCluster.Storage.Control;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The journal as the writer executor changes it. It numbers nothing and writes nothing itself: it puts each record, truncation and control state in order
/// and gives it to the journal's lanes. A leader's records are numbered by <c>GroupCommit</c>: each behind <see cref="Last"/>, and no epoch is led twice. Owned
/// by a store; writer executor.
/// </summary>
/// <param name="life">Nothing is appended when the store has ended.</param>
/// <param name="index">The records found at the open.</param>
/// <param name="segments">Closed before a segment is truncated.</param>
/// <param name="journal">Writes records and control states.</param>
/// <param name="durable">Counts what waits for the disk.</param>
internal sealed class RecordLog(StoreLifecycle life, JournalIndex index, SegmentReader segments, JournalWriter journal, DurableRecords durable)
{
    /// <summary>Called with the journal bytes of each record that is appended.</summary>
    public Action<long>? Grew { get; set; }

    /// <summary>The newest record, durable or not.</summary>
    public RecordRef Last => index.Last;

    /// <summary>The epoch that this replica leads, whose records it makes itself; null while it follows.</summary>
    public ulong? OwnEpoch { get; private set; }

    /// <inheritdoc cref="JournalWriter.HasFreeWrite"/>
    public bool HasFreeWrite => journal.HasFreeWrite;

    /// <summary>Begins to lead an epoch.</summary>
    public void Own(ulong epoch) => OwnEpoch = epoch;

    /// <summary>This replica no longer leads.</summary>
    public void Disown()
    {
        OwnEpoch = null;
        durable.Disown();
    }

    /// <summary>Appends a record, which must follow the last one.</summary>
    /// <param name="body">The record.</param>
    public void Append(in VerifiedBody body)
    {
        var isOwn = OwnEpoch is not null;
        var entry = new JournalEntry(body.Record, body.Bytes, body.Slab);
        index.Append(entry);
        var bytes = entry.Bytes;
        durable.Await(body.Record.Etag, bytes, isOwn);
        Grew?.Invoke(bytes);
        // A leader's record may use the space reserved for a full disk.
        journal.Enqueue(new JournalJob(JournalJobKind.Record) { Entry = entry, UsesReserve = isOwn });
    }

    /// <summary>Appends a record as a follower. False, with nothing changed, when the record does not follow the last one or the engine has stopped.</summary>
    public bool TryAppend(in VerifiedBody body)
    {
        if (life.HasEnded || !body.Record.Follows(Last))
            return false;
        try
        {
            Invariant.Check(OwnEpoch is null, $"The leader was given the record {body.Record} to append, but it appends only its own records.");
            Append(body);
        }
        catch (Exception exception)
        {
            life.Fail(exception);
            return false;
        }
        return true;
    }

    /// <summary>Writes a control state; <see cref="IStoreEvents.ControlWritten"/> reports when it is durable. Several writes may be in flight.</summary>
    public void WriteControl(ControlState state)
    {
        if (life.HasEnded)
            return;
        durable.AwaitControl();
        journal.Enqueue(new JournalJob(JournalJobKind.Control) { Control = state });
    }

    /// <summary>Truncates the journal after a record, which must be in it. What follows it is kept in the aside directory.</summary>
    public void Truncate(Etag lastKept)
    {
        var kept = index.Find(lastKept);
        var last = kept?.Record ?? index.Base;
        Invariant.Check(last.Etag == lastKept, $"Truncation to {lastKept}, which is not in the journal.");
        var tail = index.RemoveFrom(index.FirstAfter(lastKept));
        foreach (var entry in tail)
            entry.IsTruncated = true;
        durable.Truncate(last);
        segments.Close();
        journal.Enqueue(new JournalJob(JournalJobKind.Truncation) { Entry = kept, Last = last, Tail = tail });
    }
}
