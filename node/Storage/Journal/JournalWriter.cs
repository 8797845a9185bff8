using System.Diagnostics.CodeAnalysis;
using System.Globalization;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Writes a shard's journal and control file on its lanes' executors. Records that wait together leave in one write; each lane may have one in flight,
/// so that the device is at work on the next while one ends; through the page cache one lane has. Writes are reported in the order of their records: one that is reported means that all
/// before it are durable too, and the longest durable prefix ends at the last reported one. Everything but records (control states, cuts, changes of
/// the segment) happens with nothing else in flight. The first failure ends it: nothing behind it is reported, and no write is tried again.
/// A full disk is no failure: records for which there is no segment, or whose write found no room, wait, with the cuts behind them, until
/// <see cref="JournalJobKind.LookForSpace"/> or a recycled segment makes room; control states, which need little, pass them, and wait for themselves.
/// </summary>
/// <remarks>
/// What a crash leaves of writes in flight may be a later record without an earlier one: recovery takes the first that is torn or missing as the end of
/// the line, and the next start begins a new segment there, so that what lies behind is never reached again.
/// A write that found no room, although its place was allocated (a file system that copies on write, or gives away more than it has), is not done, and none behind
/// it is, whatever the disk has of them: all are written again from their first byte, at the same places, when nothing else is in flight.
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

    /// <summary>Belongs to the lane that is alone; while none is, to the lock.</summary>
    private readonly LinkedList<JournalJob> _stalled = new();

    /// <summary>Control states that found no room, oldest first. As <see cref="_stalled"/>.</summary>
    private readonly Queue<JournalJob> _stalledControls = new();
    private RecordRef _last;
    private UInt128 _durable;
    private bool _isAlone;
    private bool _isFilling;
    private bool _isReported;
    private bool _toldFull;

    /// <summary>A write found no room: nothing begins before what is in flight has ended.</summary>
    private bool _foundNoRoom;
    private Action? _whenQuiet;
    private long _bytesLeft;
    private volatile bool _isStalled;
    private volatile Exception? _failure;

    /// <summary>Nothing is written before <see cref="StartSegment"/>.</summary>
    /// <param name="context">The shard's executors, disk and bounds.</param>
    /// <param name="directory">Where the segments are.</param>
    /// <param name="asideDirectory">Where cut tails are kept.</param>
    /// <param name="control">The open control file; owned from here on.</param>
    /// <param name="reserve">Given up when the disk is full.</param>
    /// <param name="completions">Posted to the writer executor when there is something for <see cref="TryTakeCompleted"/>.</param>
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

    /// <summary>What ended the journal; null while it works. Any thread.</summary>
    public Exception? Failure => _failure;

    /// <inheritdoc cref="JournalSegments.IsDiskFull"/>
    public bool IsDiskFull => _segments.IsDiskFull;

    /// <summary>Records wait for room. Any thread.</summary>
    public bool IsStalled => _isStalled;

    /// <summary>How many bytes of records go in for certain while the disk is full. Any thread.</summary>
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

    /// <summary>Takes the next job that is done. Writer executor; call until false.</summary>
    public bool TryTakeCompleted([MaybeNullWhen(false)] out JournalJob job)
    {
        lock (_lock)
            return _completed.TryDequeue(out job);
    }

    /// <summary>To be called before the completed jobs are taken, so that those completed later are reported anew.</summary>
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
    /// Nothing is queued from here on. Calls <paramref name="quiet"/>, on whatever executor, when what was is done, as far as there is room for it,
    /// and nothing of this journal is written any more. Writer executor.
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

    /// <summary>Only when the executors run nothing of this shard any more.</summary>
    public void Dispose()
    {
        _segments.Dispose();
        _reader.Dispose();
        _control.Dispose();
    }

    /// <summary>The lane that is to see to what was queued, best one whose executor is not at another shard's work; null when one will anyway.</summary>
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
                // Whatever it was, what is on the disk is not known any more: kept, and told to the owner, who ends the engine.
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
        // What did not fit in is for another lane, and so is what waited for a write to end.
        if (_jobs.Count > 0 && (step == JournalStep.Write || (step == JournalStep.Fill && !_segments.TakesWritesAtOnce)))
            FindLane()?.Post();
        return step;
    }

    private JournalStep Choose(JournalLane lane)
    {
        // Whoever is at work goes on.
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
        // Whoever is at work goes on with it.
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
    /// What found no room, and what was written behind it and not reported, waits for room. A look for it follows at once: what is kept for a full disk may do.
    /// </summary>
    private void TakeBack()
    {
        _foundNoRoom = false;
        var first = _writes.Peek();
        Invariant.Check(_stalled.Count == 0, $"{_stalled.Count} jobs waited for room while records were written.");
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
            // Read once: a fill that finds the disk full in between would be taken for told, and nobody would look for room.
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

    /// <summary>Does the job that is next, with nothing else in flight. One that waits for a segment stays next if it gets it.</summary>
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

    /// <summary>Does what waits for room, in order, until there is none.</summary>
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

    /// <summary>Control states that wait, in order, until there is no room. What is kept for a full disk is theirs too: an election may wait for them.</summary>
    private void WriteControls()
    {
        while (_stalledControls.TryPeek(out var job) && IsThereRoom(() => _control.Write(job.Control!), usesReserve: true))
            Complete(_stalledControls.Dequeue());
    }

    /// <summary>Writes; false when there is no room, also not with what is kept for that. Then nothing of it counts, and all of it can be written again.</summary>
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

    /// <summary>Records that a cut takes away need no room any more; earlier cuts stay, since their ends are told.</summary>
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

    /// <summary>False: there is no room for it yet, and the line goes on as it was.</summary>
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
        // Behind the synced header, the segments between the cut's point and the new one are dead.
        _segments.DropBehind(predecessor);
        return true;
    }

    /// <summary>The cut records stay for people to look at: their bodies, one after the other, in a file named by the first's etag.</summary>
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
        // Of an attempt that found no room.
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

    /// <summary>Null: damaged, which ends nothing, since it is cut off.</summary>
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
