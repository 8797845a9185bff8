using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Jobs that wait for space on a full disk, and how they continue: records and truncations in the order of the line; control states, which need little
/// space, in a queue of their own that overtakes them. Used in exclusive steps, by their lane; between these <see cref="JournalSchedule"/> adds records
/// under its lock.
/// </summary>
internal sealed class StalledJobs
{
    private readonly StoreContext _context;
    private readonly ControlFile _control;
    private readonly JournalEnd _end;
    private readonly JournalSegments _segments;
    private readonly TruncatedRecords _truncated;
    private readonly CompletedJobs _completed;
    private readonly LinkedList<JournalJob> _line = new();
    private readonly Queue<JournalJob> _controls = new();

    public StalledJobs(
        StoreContext context, ControlFile control, JournalEnd end, JournalSegments segments, TruncatedRecords truncated, CompletedJobs completed)
    {
        _context = context;
        _control = control;
        _end = end;
        _segments = segments;
        _truncated = truncated;
        _completed = completed;
    }

    /// <summary>Records and truncations that wait. As long as there are any, later records wait behind them.</summary>
    public int LineCount => _line.Count;

    /// <summary>Whether nothing waits.</summary>
    public bool IsEmpty => _line.Count == 0 && _controls.Count == 0;

    /// <summary>Adds a record behind all others.</summary>
    public void AddRecord(JournalJob record) => _line.AddLast(record);

    /// <summary>Adds a truncation. Stalled records after its end no longer need space and are done.</summary>
    public void AddTruncation(JournalJob truncation)
    {
        DropRecordsBehind(truncation.Last.Etag);
        _line.AddLast(truncation);
    }

    /// <summary>Adds a control state.</summary>
    public void AddControl(JournalJob control) => _controls.Enqueue(control);

    /// <summary>Executes the jobs in order, control states first, until there is none left or no space.</summary>
    public void Continue(AlignedBuffer staging)
    {
        ContinueControls();
        while (_line.First is { Value: var job } && (job.Kind == JournalJobKind.Truncation ? TryTruncate(job) : TryWrite(job, staging)))
        {
            _line.RemoveFirst();
            _completed.Add(job);
        }
    }

    /// <summary>
    /// Writes the control states, in order, until there is no space. They may use the reserve too, because an election may depend on them.
    /// </summary>
    public void ContinueControls()
    {
        while (_controls.TryPeek(out var job) && IsThereRoom(() => _control.Write(job.Control!), usesReserve: true))
            _completed.Add(_controls.Dequeue());
    }

    private bool TryWrite(JournalJob record, AlignedBuffer staging)
    {
        if (!_end.HasRoomFor(record.Entry!) && !_segments.TryRoll(record))
            return false;
        var write = _end.BeginWrite();
        _end.Add(write, record);
        if (!IsThereRoom(() => write.WriteDurable(staging, _context), record.UsesReserve))
        {
            _end.TakeBack(write);
            return false;
        }
        _end.Complete(write);
        return true;
    }

    /// <summary>Truncates the line. False when there is no space for it yet; the line is then unchanged.</summary>
    private bool TryTruncate(JournalJob truncation)
    {
        var predecessor = truncation.Entry?.Segment ?? 0;
        try
        {
            _truncated.Keep(truncation.Tail, _segments.NextNumber);
            _segments.Start(truncation.Last, predecessor, truncation.Entry?.End ?? 0);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _segments.NoteFull();
            return false;
        }
        // The new header is durable, so the segments between the truncation point and the new segment are dead.
        _segments.DropBehind(predecessor);
        return true;
    }

    /// <summary>Executes a write. False when there is no space, not even with the reserve. Then nothing of it counts and all of it can be repeated.</summary>
    private bool IsThereRoom(Action write, bool usesReserve)
    {
        while (true)
        {
            try
            {
                write();
                return true;
            }
            catch (StorageIoException exception) when (exception.IsDiskFull)
            {
                _segments.NoteFull();
                if (!usesReserve || !_segments.ReleaseReserve())
                    return false;
            }
        }
    }

    /// <summary>Earlier truncations stay queued, because their completion is reported.</summary>
    private void DropRecordsBehind(Etag lastKept)
    {
        for (var node = _line.First; node is not null;)
        {
            var next = node.Next;
            if (node.Value.Entry is { } entry && node.Value.Kind == JournalJobKind.Record && entry.Record.Etag > lastKept)
            {
                _completed.Add(node.Value);
                _line.Remove(node);
            }
            node = next;
        }
    }
}
