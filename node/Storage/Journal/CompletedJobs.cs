using System.Diagnostics.CodeAnalysis;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Jobs that are done, on their way from the lanes to the writer executor. The report is posted to it once, and not again until it has acknowledged that. It
/// may be held with those of other shards, by each lane for itself, so that no lane's jobs wait for another lane. Any thread; the lock is the innermost one.
/// </summary>
internal sealed class CompletedJobs
{
    private readonly Lock _lock = new();
    private readonly Queue<JournalJob> _jobs = new();
    private readonly JournalSegments _segments;
    private readonly ISerialExecutor _writer;
    private readonly IWorkItem _report;
    private readonly Func<IWorkItem?> _take;
    private bool _isReported;
    private bool _toldFull;

    /// <summary>Nothing is done yet.</summary>
    /// <param name="segments">A full disk is reported too.</param>
    /// <param name="writer">The writer executor.</param>
    /// <param name="report">Posted to it.</param>
    public CompletedJobs(JournalSegments segments, ISerialExecutor writer, IWorkItem report)
    {
        (_segments, _writer, _report) = (segments, writer, report);
        _take = TakeReport;
    }

    /// <summary>Adds a job that is done. The next <see cref="Report"/> tells the writer.</summary>
    public void Add(JournalJob job)
    {
        lock (_lock)
            _jobs.Enqueue(job);
    }

    /// <summary>Adds records that are durable, in their order.</summary>
    public void Add(IReadOnlyList<JournalJob> records)
    {
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
    /// <param name="hasFailed">Whether the journal has failed.</param>
    /// <param name="posts">Holds a report that has nothing but jobs; null: it is posted at once.</param>
    public void Report(bool hasFailed, HeldPosts? posts = null)
    {
        lock (_lock)
        {
            // Read once. If it were read again, a fill that finds the disk full in between would count as reported, and nobody would look for space.
            var isFull = _segments.IsDiskFull;
            var becameFull = isFull && !_toldFull;
            _toldFull = isFull;
            if (_isReported || (_jobs.Count == 0 && !hasFailed && !becameFull))
                return;
            if (hasFailed || becameFull)
                posts = null;
            _isReported = posts is null;
        }
        if (posts is null)
            _writer.Post(_report);
        else
            posts.Hold(_take);
    }

    /// <summary>A held report is due. Null if the writer was told of all jobs meanwhile.</summary>
    private IWorkItem? TakeReport()
    {
        lock (_lock)
        {
            if (_isReported || _jobs.Count == 0)
                return null;
            _isReported = true;
        }
        return _report;
    }
}
