using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The journal as the writer executor sees it: the records of the live segments, which of them are durable, and how much waits for the disk. It gives the
/// journal's lanes their work and takes the results. Owned by a store; writer executor.
/// </summary>
/// <param name="context">The shard's disk and bounds.</param>
/// <param name="index">The records found at the open.</param>
/// <param name="reader">Reads bodies that are no longer in memory.</param>
/// <param name="journal">Writes records and control states.</param>
/// <param name="control">The control state found at the open.</param>
internal sealed class RecordLog(StoreContext context, JournalIndex index, SegmentReader reader, JournalWriter journal, ControlState control)
{
    /// <summary>Etags of own records of the current epoch that are neither durable here nor committed, oldest first.</summary>
    private readonly Queue<UInt128> _unsettled = new();

    /// <summary>The newest control state that is durable. The open sets it again when recovery has changed it.</summary>
    public ControlState Control { get; set; } = control;

    /// <summary>Called with the journal bytes of each record that is appended.</summary>
    public Action<long>? Grew { get; set; }

    /// <summary>The newest record, durable or not.</summary>
    public RecordRef Last => index.Last;

    /// <summary>The end of the longest prefix of records whose writes have completed.</summary>
    public RecordRef Durable { get; private set; } = index.Last;

    /// <summary>Own records that are neither durable here nor committed.</summary>
    public int UnsettledCount => _unsettled.Count;

    /// <summary>Journal bytes of the records that wait for the disk.</summary>
    public long BytesInFlight { get; private set; }

    /// <summary>Whether another record may wait for the disk. A slow disk delays nothing until this bound is reached.</summary>
    public bool HasRoom => BytesInFlight < context.Options.WaitingBodyBytesMax;

    /// <summary>Appends a record, which must follow the last one.</summary>
    /// <param name="record">The record.</param>
    /// <param name="body">Its body, which belongs to the journal from here on.</param>
    /// <param name="isOwn">This replica leads and made the record. Such a record may use the space reserved for a full disk.</param>
    public void Append(in RecordRef record, byte[] body, bool isOwn)
    {
        var entry = new JournalEntry(record, body);
        index.Append(entry);
        if (isOwn)
            _unsettled.Enqueue(record.Etag);
        var bytes = RecordEnvelope.RecordBytes(body.Length);
        BytesInFlight += bytes;
        Grew?.Invoke(bytes);
        journal.Enqueue(new JournalJob(JournalJobKind.Record) { Entry = entry, UsesReserve = isOwn });
    }

    /// <summary>Writes a control state. Several writes may be in flight.</summary>
    public void WriteControl(ControlState state) => journal.Enqueue(new JournalJob(JournalJobKind.Control) { Control = state });

    /// <summary>Truncates the journal after a record, which must be in it. What follows it is kept in the aside directory.</summary>
    public void Cut(UInt128 lastKept)
    {
        var kept = index.Find(lastKept);
        var last = kept?.Record ?? index.Base;
        Invariant.Check(last.Etag == lastKept, $"Truncation to {lastKept}, which is not in the journal.");
        var tail = index.RemoveFrom(index.FirstAfter(lastKept));
        foreach (var entry in tail)
            entry.IsCut = true;
        if (Durable.Etag > lastKept)
            Durable = last;
        reader.Close();
        journal.Enqueue(new JournalJob(JournalJobKind.Cut) { Entry = kept, Last = last, Tail = tail });
    }

    /// <summary>The next batch may follow when either this disk or a majority without it has the record.</summary>
    public void Settle(UInt128 etag)
    {
        while (_unsettled.TryPeek(out var first) && first <= etag)
            _unsettled.Dequeue();
    }

    /// <summary>Own records are prepared records like any others from here on, because this replica no longer leads.</summary>
    public void Disown() => _unsettled.Clear();

    /// <summary>Takes what the lanes have completed, and tells the owner.</summary>
    public void Report(IStoreEvents owner)
    {
        JournalEntry? durable = null;
        while (journal.TryTakeCompleted(out var job))
        {
            if (job.Kind == JournalJobKind.Record)
            {
                BytesInFlight -= RecordEnvelope.RecordBytes(job.Entry!.Record.BodyBytes);
                job.Entry.IsDurable = true;
                durable = job.Entry.IsCut ? durable : job.Entry;
                continue;
            }
            ReportDurable(durable, owner);
            durable = null;
            if (job.Kind == JournalJobKind.Control)
            {
                Control = job.Control!;
                owner.ControlWritten(Control);
            }
            else if (job.Kind == JournalJobKind.Cut)
            {
                owner.CutDone(job.Last);
            }
        }
        ReportDurable(durable, owner);
    }

    /// <summary>Finds the record with this etag, if it is in a live segment or directly before the oldest one.</summary>
    public bool TryFind(UInt128 etag, out RecordRef record)
    {
        record = index.Find(etag)?.Record ?? index.Base;
        return record.Etag == etag;
    }

    /// <summary>Finds the newest record that is not after this etag, if the live segments reach back so far.</summary>
    public bool TryFindAtOrBefore(UInt128 etag, out RecordRef record)
    {
        var next = index.FirstAfter(etag);
        record = next > 0 ? index[next - 1].Record : index.Base;
        return record.Etag <= etag;
    }

    /// <summary>The body of a record, from memory or from its segment.</summary>
    /// <exception cref="CorruptStoreException">The segment no longer holds that record.</exception>
    public byte[] BodyOf(JournalEntry entry) => entry.Body ?? reader.ReadBody(entry);

    /// <summary>
    /// Adds the bodies that follow a record, in order, up to <paramref name="bytesMax"/> bytes and at least one if there is any. The newest come from
    /// memory, older ones from their segments. Returns their count, or -1 when the live segments do not reach back so far.
    /// </summary>
    /// <param name="after">The etag of the record before the first one.</param>
    /// <param name="covered">The etag up to which a checkpoint covers the journal.</param>
    /// <param name="bytesMax">The most bytes, unless the first body alone has more.</param>
    /// <param name="bodies">Receives the bodies, which stay valid and unchanged.</param>
    /// <exception cref="CorruptStoreException">A record that no checkpoint covers is damaged.</exception>
    public int ReadBodies(UInt128 after, UInt128 covered, int bytesMax, List<ReadOnlyMemory<byte>> bodies)
    {
        if (after < index.Base.Etag)
            return -1;
        var (count, bytes) = (0, 0L);
        for (var next = index.FirstAfter(after); next < index.Count && (count == 0 || bytes + index[next].Record.BodyBytes <= bytesMax); next++, count++)
        {
            var entry = index[next];
            try
            {
                bodies.Add(BodyOf(entry));
            }
            catch (CorruptStoreException damage) when (entry.Record.Etag <= covered)
            {
                // Only lagging followers need a covered record. They get a snapshot instead.
                index.RemoveOldest(next + 1);
                StoreLog.CoveredJournalDamaged(context.Log, damage.Message);
                return count == 0 ? -1 : count;
            }
            bytes += entry.Record.BodyBytes;
        }
        return count;
    }

    private void ReportDurable(JournalEntry? entry, IStoreEvents owner)
    {
        // An event handler may have truncated it in between.
        if (entry is null || entry.IsCut)
            return;
        Durable = entry.Record;
        Settle(Durable.Etag);
        index.DropOldBodies();
        owner.Durable(Durable);
    }
}
