using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Jobs that are done, on their way from the lanes to the writer executor. The report is posted to it once, and not again until it has acknowledged that.
/// Any thread; the lock is the innermost one.
/// </summary>
/// <param name="segments">A full disk is reported too.</param>
/// <param name="writer">The writer executor.</param>
/// <param name="report">Posted to it.</param>
/// <param name="time">Tells when records became durable.</param>
internal sealed class CompletedJobs(JournalSegments segments, ISerialExecutor writer, IWorkItem report, TimeProvider time)
{
    private readonly Lock _lock = new();
    private readonly Queue<JournalJob> _jobs = new();
    private bool _isReported;
    private bool _toldFull;
    private long _recordsAt;

    /// <summary>When a record was last added, as a timestamp of the store's clock. Any thread.</summary>
    public long RecordsAt => Volatile.Read(ref _recordsAt);

    /// <summary>Adds a job that is done. The next <see cref="Report"/> tells the writer.</summary>
    public void Add(JournalJob job)
    {
        if (job.Kind == JournalJobKind.Record)
            Volatile.Write(ref _recordsAt, time.GetTimestamp());
        lock (_lock)
            _jobs.Enqueue(job);
    }

    /// <summary>Adds records that are durable, in their order.</summary>
    public void Add(IReadOnlyList<JournalJob> records)
    {
        Volatile.Write(ref _recordsAt, time.GetTimestamp());
        lock (_lock)
        {
            for (var i = 0; i < records.Count; i++)
                _jobs.Enqueue(records[i]);
        }
    }

    /// <summary>Takes the next job. Writer executor.</summary>
    public bool TryTake([MaybeNullWhen(false)] out JournalJob job)
    {
        lock (_lock)
            return _jobs.TryDequeue(out job);
    }

    /// <summary>Lets the writer executor be posted again. It calls this before it takes jobs, so none is left behind.</summary>
    public void Acknowledge()
    {
        lock (_lock)
            _isReported = false;
    }

    /// <summary>Posts the report to the writer executor if there is anything to tell: jobs, a failure, or a disk that has become full.</summary>
    public void Report(bool hasFailed)
    {
        lock (_lock)
        {
            // Read once. If it were read again, a fill that finds the disk full in between would count as reported, and nobody would look for space.
            var isFull = segments.IsDiskFull;
            var becameFull = isFull && !_toldFull;
            _toldFull = isFull;
            if (_isReported || (_jobs.Count == 0 && !hasFailed && !becameFull))
                return;
            _isReported = true;
        }
        writer.Post(report);
    }
}
