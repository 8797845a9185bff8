using KvCluster.Storage.Context;
using KvCluster.Storage.Control;

namespace KvCluster.Storage.Journal;

/// <summary>
/// How far the disk is: which records and which control state are durable, and how much waits for the disk. Takes the results of the journal's lanes. Owned
/// by a store; writer executor.
/// </summary>
/// <param name="index">The records found at the open.</param>
/// <param name="completed">What the lanes have done.</param>
/// <param name="control">The control state found at the open.</param>
internal sealed class DurableRecords(JournalIndex index, CompletedJobs completed, ControlState control)
{
    /// <summary>Etags of own records of the current epoch that are neither durable here nor committed, oldest first.</summary>
    private readonly Queue<Etag> _unsettled = new();

    /// <summary>The newest control state that is durable. The open sets it again when recovery has changed it.</summary>
    public ControlState Control { get; set; } = control;

    /// <summary>The end of the longest prefix of records whose writes have completed (S3). It falls only with a truncation.</summary>
    public RecordRef Last { get; private set; } = index.Last;

    /// <summary>When it last grew, as a timestamp of the store's clock taken when the write ended; 0 if never.</summary>
    public long LastAt { get; private set; }

    /// <summary>Control states that wait for the disk.</summary>
    public int ControlsInFlight { get; private set; }

    /// <summary>Own records that are neither durable here nor committed.</summary>
    public int UnsettledCount => _unsettled.Count;

    /// <summary>Journal bytes of the records that wait for the disk.</summary>
    public long BytesInFlight { get; private set; }

    /// <summary>A record is about to be given to the lanes.</summary>
    /// <param name="etag">The record.</param>
    /// <param name="bytes">Its journal bytes.</param>
    /// <param name="isOwn">This replica leads and made the record.</param>
    public void Await(Etag etag, int bytes, bool isOwn)
    {
        if (isOwn)
            _unsettled.Enqueue(etag);
        BytesInFlight += bytes;
    }

    /// <summary>A control state is about to be given to the lanes.</summary>
    public void AwaitControl() => ControlsInFlight++;

    /// <summary>The next batch may follow when either this disk or a majority without it has the record.</summary>
    public void Settle(Etag etag)
    {
        while (_unsettled.TryPeek(out var first) && first <= etag)
            _unsettled.Dequeue();
    }

    /// <summary>Own records are prepared records like any others from here on, because this replica no longer leads.</summary>
    public void Disown() => _unsettled.Clear();

    /// <summary>The journal was truncated after a record.</summary>
    public void Truncate(RecordRef last)
    {
        if (Last.Etag > last.Etag)
            Last = last;
    }

    /// <summary>Takes what the lanes have completed, and tells the owner.</summary>
    public void Report(IStoreEvents owner)
    {
        JournalEntry? durable = null;
        while (completed.TryTake(out var job))
        {
            if (job.Kind == JournalJobKind.Record)
            {
                BytesInFlight -= job.Entry!.Bytes;
                job.Entry.IsDurable = true;
                durable = job.Entry.IsTruncated ? durable : job.Entry;
                continue;
            }
            Report(durable, owner);
            durable = null;
            if (job.Kind == JournalJobKind.Control)
            {
                Control = job.Control!;
                ControlsInFlight--;
                owner.ControlWritten(Control);
            }
            else if (job.Kind == JournalJobKind.Truncation)
            {
                owner.Truncated(job.Last);
            }
        }
        Report(durable, owner);
    }

    private void Report(JournalEntry? entry, IStoreEvents owner)
    {
        // An event handler may have truncated the record in between.
        if (entry is null || entry.IsTruncated)
            return;
        Last = entry.Record;
        LastAt = completed.RecordsAt;
        Settle(Last.Etag);
        index.DropOldBodies();
        owner.Durable(Last);
    }
}
