using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Writes a shard's journal and control file on its lanes' executors. Records that wait together are written with one write. Each lane may have one write
/// in flight, so the device can start the next one while one completes; through the page cache only one lane has. Writes are reported in record order: a
/// reported write means that all records before it are durable too, so the longest durable prefix ends at the last one reported. Everything except records
/// (control states, truncations, a change of segment) happens with nothing else in flight. The first failure stops the journal: nothing after it is
/// reported, and no write is retried. A full disk is not a failure. Records without a segment, or whose write found no space, wait, together with the
/// truncations after them, until <see cref="JournalJobKind.LookForSpace"/> or a recycled segment makes space. Control states need little space; they
/// overtake these records and wait in a queue of their own.
/// </summary>
/// <remarks>
/// After a crash, writes in flight may leave a later record without an earlier one. Recovery treats the first torn or missing record as the end of the
/// line, and the next start begins a new segment there, so anything after it is never reached again. A write may find no space although its blocks were
/// allocated, if the file system copies on write or overcommits. Such a write does not count, and neither does any write after it, whatever reached the
/// disk. They are all repeated from their first byte, at the same offsets, when nothing else is in flight.
/// </remarks>
internal sealed class JournalWriter : IDisposable
{
    private readonly StoreContext _context;
    private readonly string _asideDirectory;
    private readonly ControlFile _control;
    private readonly IWorkItem _completions;
    private readonly JournalSegments _segments;
    private readonly SegmentReader _reader;
    private readonly JournalLane[] _lanes;
    private readonly Lock _lock = new();
    private readonly Queue<JournalJob> _jobs = new();
    private readonly Queue<JournalWrite> _writes = new();
    private readonly Queue<JournalJob> _completed = new();

    /// <summary>Owned by the lane that runs alone; if there is none, protected by the lock.</summary>
    private readonly LinkedList<JournalJob> _stalled = new();

    /// <summary>Control states that found no space, oldest first. Owned like <see cref="_stalled"/>.</summary>
    private readonly Queue<JournalJob> _stalledControls = new();
    private RecordRef _last;
    private UInt128 _durable;
    private bool _isAlone;
    private bool _isFilling;
    private bool _isReported;
    private bool _toldFull;

    /// <summary>A write found no space. Nothing begins until everything in flight has ended.</summary>
    private bool _foundNoRoom;
    private Action? _whenQuiet;
    private long _bytesLeft;
    private volatile bool _isStalled;
    private volatile Exception? _failure;

    /// <summary>Nothing is written before <see cref="StartSegment"/>.</summary>
    /// <param name="context">The shard's executors, disk and bounds.</param>
    /// <param name="directory">The directory of the segments.</param>
    /// <param name="asideDirectory">The directory in which truncated records are kept.</param>
    /// <param name="control">The open control file, owned by the writer from here on.</param>
    /// <param name="reserve">Released when the disk is full.</param>
    /// <param name="completions">Posted to the writer executor when <see cref="TryTakeCompleted"/> has jobs.</param>
    public JournalWriter(
        StoreContext context, string directory, string asideDirectory, ControlFile control, SpaceReserve reserve, IWorkItem completions)
    {
        _context = context;
        _asideDirectory = asideDirectory;
        _control = control;
        _completions = completions;
        _segments = new JournalSegments(context, directory, control, reserve);
        _reader = new SegmentReader(context.Files, directory);
        _lanes = [.. context.JournalLanes.Select(executor => new JournalLane(executor, Run))];
    }

    /// <summary>What stopped the journal; null while it works. Any thread.</summary>
    public Exception? Failure => _failure;

    /// <inheritdoc cref="JournalSegments.IsDiskFull"/>
    public bool IsDiskFull => _segments.IsDiskFull;

    /// <summary>Whether records wait for space. Any thread.</summary>
    public bool IsStalled => _isStalled;

    /// <summary>How many bytes of records are certain to fit while the disk is full. Any thread.</summary>
    public long BytesLeft => Interlocked.Read(ref _bytesLeft);

    /// <inheritdoc cref="JournalSegments.Bytes"/>
    public long Bytes => _segments.Bytes;

    /// <summary>Queues a job. Writer executor.</summary>
    public void Enqueue(JournalJob job)
    {
        JournalLane? lane;
        lock (_lock)
        {
            _jobs.Enqueue(job);
            lane = FindLane();
        }
        lane?.Post();
    }

    /// <summary>Takes the next completed job. Writer executor; call until it returns false.</summary>
    public bool TryTakeCompleted([MaybeNullWhen(false)] out JournalJob job)
    {
        lock (_lock)
            return _completed.TryDequeue(out job);
    }

    /// <summary>Call before the completed jobs are taken, so that jobs completed later are reported again.</summary>
    public void AcknowledgeReport()
    {
        lock (_lock)
            _isReported = false;
    }

    /// <inheritdoc cref="JournalSegments.Adopt"/>
    public void Adopt(IEnumerable<(ulong Number, ulong Incarnation, long Bytes)> line, ulong nextNumber) => _segments.Adopt(line, nextNumber);

    /// <inheritdoc cref="JournalSegments.Retire"/>
    public void Retire(ulong number) => _segments.Retire(number);

    /// <inheritdoc cref="JournalSegments.Start"/>
    public void StartSegment(RecordRef last, ulong predecessor, long predecessorEnd)
    {
        _segments.Start(last, predecessor, predecessorEnd);
        _last = last;
        _durable = last.Etag;
    }

    /// <summary>
    /// Nothing may be queued after this. Calls <paramref name="quiet"/>, on any executor, when all queued jobs for which there is space are done and
    /// nothing of this journal is written any more. Writer executor.
    /// </summary>
    public void Stop(Action quiet)
    {
        lock (_lock)
        {
            if (_lanes.Any(lane => lane.IsPosted || lane.IsRunning))
            {
                _whenQuiet = quiet;
                return;
            }
        }
        quiet();
    }

    /// <summary>Call only when the executors no longer run anything of this shard.</summary>
    public void Dispose()
    {
        _segments.Dispose();
        _reader.Dispose();
        _control.Dispose();
    }

    /// <summary>
    /// The lane that should handle what was queued, preferably one whose executor is not busy with another shard. Null when a lane will handle it anyway.
    /// </summary>
    private JournalLane? FindLane()
    {
        if (_isAlone || _lanes.Any(lane => lane.IsPosted))
            return null;
        var free = _lanes.FirstOrDefault(lane => !lane.IsRunning && lane.HasIdleExecutor) ?? _lanes.FirstOrDefault(lane => !lane.IsRunning);
        if (free is not null)
            free.IsPosted = true;
        return free;
    }

    private void Run(JournalLane lane)
    {
        JournalStep step;
        do
        {
            lock (_lock)
                step = Begin(lane);
            try
            {
                Do(lane, step);
            }
            catch (StorageIoException exception) when (exception.IsDiskFull && step == JournalStep.Write)
            {
                lock (_lock)
                    _foundNoRoom = lane.FoundNoRoom = true;
            }
            catch (Exception exception)
            {
                // After any failure the content of the disk is unknown. The exception is kept and reported to the owner, which stops the engine.
                Interlocked.CompareExchange(ref _failure, exception, null);
            }
            Action? quiet;
            lock (_lock)
                quiet = End(lane, step);
            Report();
            quiet?.Invoke();
        }
        while (step != JournalStep.None);
    }

    private JournalStep Begin(JournalLane lane)
    {
        lane.IsPosted = false;
        var step = _failure is null && !_isAlone ? Choose(lane) : JournalStep.None;
        lane.IsRunning = step != JournalStep.None;
        lane.HasWritten = step == JournalStep.Write;
        _isFilling |= step == JournalStep.Fill;
        _isAlone |= step == JournalStep.Alone;
        // Another lane takes what did not fit into this write, or what waited for a write to end.
        if (_jobs.Count > 0 && (step == JournalStep.Write || (step == JournalStep.Fill && !_segments.TakesWritesAtOnce)))
            FindLane()?.Post();
        return step;
    }

    private JournalStep Choose(JournalLane lane)
    {
        // A lane that is still working continues when it is done.
        if (_foundNoRoom)
            return JournalStep.None;
        var mayFill = _segments.WantsFill && !_isFilling && _whenQuiet is null;
        if (mayFill && lane.HasWritten)
            return JournalStep.Fill;
        lane.Write = TakeRecords();
        if (lane.Write is not null)
            return JournalStep.Write;
        if (_jobs.Count == 0)
            return mayFill ? JournalStep.Fill : JournalStep.None;
        // A lane that is still working continues with this job.
        return _writes.Count == 0 && !_isFilling ? JournalStep.Alone : JournalStep.None;
    }

    private JournalWrite? TakeRecords()
    {
        JournalWrite? write = null;
        while (_jobs.TryPeek(out var job) && job.Kind == JournalJobKind.Record)
        {
            if (_stalled.Count > 0)
            {
                _stalled.AddLast(_jobs.Dequeue());
                continue;
            }
            var bytes = BytesOf(job);
            if (write is null && _writes.Count > 0 && !_segments.TakesWritesAtOnce)
                break;
            if (!_segments.HasRoomFor(bytes) || write?.Takes(bytes) == false)
                break;
            write ??= _segments.BeginWrite(_durable, _last);
            Add(write, _jobs.Dequeue());
        }
        if (write is not null)
            _writes.Enqueue(write);
        return write;
    }

    private void Add(JournalWrite write, JournalJob job)
    {
        _segments.Take(BytesOf(job));
        write.Add(job);
        _last = job.Entry!.Record;
    }

    private void Do(JournalLane lane, JournalStep step)
    {
        if (step == JournalStep.None)
            return;
        var staging = StagingPool.Rent();
        try
        {
            if (step == JournalStep.Write)
                WriteTimed(lane.Write!, staging);
            else if (step == JournalStep.Fill)
                _segments.FillStep(staging);
            else
                DoAlone(staging);
        }
        finally
        {
            StagingPool.Return(staging);
        }
    }

    private void WriteTimed(JournalWrite write, AlignedBuffer staging)
    {
        var observer = _context.Observer;
        if (!observer.IsWatching)
        {
            write.Write(staging);
            return;
        }
        var began = _context.Time.GetTimestamp();
        write.Write(staging);
        observer.JournalWritten(write.Jobs[0].Entry!.Record, write.Jobs[^1].Entry!.Record, write.Bytes, _context.Time.GetElapsedTime(began));
    }

    private Action? End(JournalLane lane, JournalStep step)
    {
        if (step == JournalStep.Write)
            CompleteWrite(lane);
        _isAlone &= step != JournalStep.Alone;
        _isFilling &= step != JournalStep.Fill;
        if (_foundNoRoom && !_lanes.Any(other => other.Write is not null))
            TakeBack();
        if (step != JournalStep.None && !_isAlone && !_isFilling)
        {
            _isStalled = _stalled.Count > 0;
            Interlocked.Exchange(ref _bytesLeft, _isStalled ? 0 : _segments.BytesLeft);
        }
        if (step != JournalStep.None || _lanes.Any(other => other.IsPosted || other.IsRunning))
            return null;
        (var quiet, _whenQuiet) = (_whenQuiet, null);
        return quiet;
    }

    private bool IsAnyWriteDone()
    {
        foreach (var write in _writes)
        {
            if (write.IsDone)
                return true;
        }
        return false;
    }

    private void CompleteWrite(JournalLane lane)
    {
        lane.Write!.IsDone = _failure is null && !lane.FoundNoRoom;
        lane.Write = null;
        lane.FoundNoRoom = false;
        while (_writes.TryPeek(out var first) && _context.Rules.MayReport(first.IsDone, IsAnyWriteDone()))
        {
            foreach (var job in first.Jobs)
                _completed.Enqueue(job);
            _writes.Dequeue();
            _durable = first.Jobs[^1].Entry!.Record.Etag;
        }
    }

    /// <summary>
    /// Makes the write that found no space, and the unreported writes after it, wait for space. A check follows at once, because the reserve may be
    /// enough.
    /// </summary>
    private void TakeBack()
    {
        _foundNoRoom = false;
        var first = _writes.Peek();
        Invariant.Check(_stalled.Count == 0, $"{_stalled.Count} jobs were waiting for disk space while records were being written.");
        _segments.NoteFull();
        _segments.TakeBack(first.Offset);
        _last = first.Previous;
        while (_writes.TryDequeue(out var write))
        {
            foreach (var job in write.Jobs)
                _stalled.AddLast(job);
        }
        _jobs.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
    }

    private void Report()
    {
        lock (_lock)
        {
            // Read once. If it were read again, a fill that finds the disk full in between would count as reported, and nobody would look for space.
            var isFull = IsDiskFull;
            var hasFilled = isFull && !_toldFull;
            _toldFull = isFull;
            if (_isReported || (_completed.Count == 0 && _failure is null && !hasFilled))
                return;
            _isReported = true;
        }
        _context.Writer.Post(_completions);
    }

    private void Complete(JournalJob job)
    {
        lock (_lock)
            _completed.Enqueue(job);
    }

    /// <summary>Executes the next job with nothing else in flight. A record that needed a segment and got one stays next in the queue.</summary>
    private void DoAlone(AlignedBuffer staging)
    {
        JournalJob job;
        lock (_lock)
            job = _jobs.Peek();
        if (job.Kind == JournalJobKind.Record && _segments.TryRoll(_last, BytesOf(job), job.UsesReserve))
            return;
        lock (_lock)
            _jobs.Dequeue();
        switch (job.Kind)
        {
            case JournalJobKind.Record:
                _stalled.AddLast(job);
                return;
            case JournalJobKind.Control:
                _stalledControls.Enqueue(job);
                WriteControls();
                return;
            case JournalJobKind.Cut:
                DropStalledBehind(job.Last.Etag);
                _stalled.AddLast(job);
                GoOn(staging);
                return;
            case JournalJobKind.Recycle:
                _segments.Recycle(job.Number);
                GoOn(staging);
                break;
            default:
                GoOn(staging);
                if (_stalled.Count == 0 && _stalledControls.Count == 0)
                    _segments.LookForSpace();
                break;
        }
        Complete(job);
    }

    /// <summary>Executes the jobs that wait for space, in order, until there is none left.</summary>
    private void GoOn(AlignedBuffer staging)
    {
        WriteControls();
        while (_stalled.First is { Value: var job } && (job.Kind == JournalJobKind.Cut ? TryCut(job) : TryWrite(job, staging)))
        {
            _stalled.RemoveFirst();
            Complete(job);
        }
    }

    private bool TryWrite(JournalJob job, AlignedBuffer staging)
    {
        if (!_segments.HasRoomFor(BytesOf(job)) && !_segments.TryRoll(_last, BytesOf(job), job.UsesReserve))
            return false;
        var write = _segments.BeginWrite(_durable, _last);
        Add(write, job);
        if (!IsThereRoom(() => WriteTimed(write, staging), job.UsesReserve))
        {
            _segments.TakeBack(write.Offset);
            _last = write.Previous;
            return false;
        }
        _durable = _last.Etag;
        return true;
    }

    /// <summary>
    /// Writes the waiting control states, in order, until there is no space. They may use the reserve too, because an election may depend on them.
    /// </summary>
    private void WriteControls()
    {
        while (_stalledControls.TryPeek(out var job) && IsThereRoom(() => _control.Write(job.Control!), usesReserve: true))
            Complete(_stalledControls.Dequeue());
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

    /// <summary>Truncated records no longer need space. Earlier truncations stay queued, because their completion is reported.</summary>
    private void DropStalledBehind(UInt128 lastKept)
    {
        for (var node = _stalled.First; node is not null;)
        {
            var next = node.Next;
            if (node.Value.Entry is { } entry && node.Value.Kind == JournalJobKind.Record && entry.Record.Etag > lastKept)
            {
                Complete(node.Value);
                _stalled.Remove(node);
            }
            node = next;
        }
    }

    /// <summary>Truncates the line. False when there is no space for it yet; the line is then unchanged.</summary>
    private bool TryCut(JournalJob job)
    {
        var predecessor = job.Entry?.Segment ?? 0;
        try
        {
            KeepAside(job);
            StartSegment(job.Last, predecessor, job.Entry?.End ?? 0);
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

    /// <summary>Keeps the bodies of truncated records for inspection, one after the other in one file. Its name contains the etag of the first.</summary>
    private void KeepAside(JournalJob job)
    {
        if (job.Tail.Count == 0)
            return;
        var files = _context.Files;
        files.CreateDirectory(_asideDirectory);
        files.SyncDirectory(Path.GetDirectoryName(_asideDirectory)!);
        var names = files.List(_asideDirectory);
        for (var index = 0; index <= names.Count - _context.Options.AsideFilesMax; index++)
            files.Delete(Path.Combine(_asideDirectory, names[index]));
        var name = string.Create(CultureInfo.InvariantCulture, $"{_segments.NextNumber:x16}-{job.Tail[0].Record.Etag:x32}.bodies");
        var path = Path.Combine(_asideDirectory, name);
        // Left by an attempt that found no space.
        files.Delete(path);
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));
        var offset = 0L;
        try
        {
            foreach (var entry in job.Tail)
            {
                if (TryReadBody(entry) is not { } body)
                    continue;
                file.Write(body, offset);
                offset += body.Length;
            }
            file.Sync();
            files.SyncDirectory(_asideDirectory);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            files.Delete(path);
            throw;
        }
        _reader.Close();
    }

    /// <summary>Null if the body is damaged. That is no failure, because the record is being truncated.</summary>
    private byte[]? TryReadBody(JournalEntry entry)
    {
        try
        {
            return entry.Body ?? _reader.ReadBody(entry);
        }
        catch (CorruptStoreException damage)
        {
            StoreLog.CutRecordDamaged(_context.Log, damage.Message);
            return null;
        }
    }

    private static int BytesOf(JournalJob job) => RecordEnvelope.RecordBytes(job.Entry!.Record.BodyBytes);
}
