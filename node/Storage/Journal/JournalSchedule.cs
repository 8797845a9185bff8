using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The state machine of a journal: which step each lane takes next, and in which order writes are reported. All of it is behind one lock, which is never
/// held during a step. The writer executor queues jobs; the lanes call <see cref="Begin"/> and <see cref="End"/> around each step.
/// </summary>
/// <remarks>
/// What the lanes may do together is the <see cref="JournalPhase"/>; what one lane does is its <see cref="LaneState"/>. Both change only along their tables.
/// Records that wait together are written with one write. Each lane may have one write in flight, so the device can start the next one while one completes;
/// without direct I/O only one lane may. There are as many lanes as <c>StoreOptions.JournalWrites</c>. Everything except records and fills is
/// exclusive. While writes of many shards meet on the executors of the lanes, in a shared journal, one lane more does all except short records, on an executor
/// of its own: each of those steps takes some milliseconds, and the records of all these shards would wait for it. A long record that finds it at work is for
/// the last of the lanes.
/// </remarks>
internal sealed class JournalSchedule
{
    private readonly JournalEnd _end;
    private readonly JournalSegments _segments;
    private readonly StalledJobs _stalled;
    private readonly CompletedJobs _completed;
    private readonly JournalLane[] _lanes;

    /// <summary>Gets writes of the lanes. All shards have their executors in the same order then. Null if there is none.</summary>
    private readonly SharedJournal? _shared;
    private readonly JournalLane? _aside;
    private readonly JournalLane[] _all;
    private readonly Lock _lock = new();

    /// <summary>What no lane has begun, in the order in which it was queued.</summary>
    private readonly Queue<JournalJob> _jobs = new();

    /// <summary>Writes that are not reported, in the order of their records: in flight, or durable behind one that is in flight.</summary>
    private readonly Queue<DurableWrite> _writes = new();
    private JournalPhase _phase;
    private Action? _whenQuiet;
    private long _bytesLeft;
    private volatile bool _isStalled;
    private volatile Exception? _failure;

    /// <param name="end">The end of the journal.</param>
    /// <param name="segments">The segments.</param>
    /// <param name="stalled">What waits for space on the disk.</param>
    /// <param name="completed">The jobs that are done.</param>
    /// <param name="lanes">Write records, and do everything else without <paramref name="aside"/>.</param>
    /// <param name="shared">The journal of several shards; null if there is none.</param>
    /// <param name="aside">With it: does all except short records.</param>
    public JournalSchedule(
        JournalEnd end,
        JournalSegments segments,
        StalledJobs stalled,
        CompletedJobs completed,
        IEnumerable<JournalLane> lanes,
        SharedJournal? shared,
        JournalLane? aside)
    {
        (_shared, _aside) = (shared, aside);
        _end = end;
        _segments = segments;
        _stalled = stalled;
        _completed = completed;
        _lanes = [.. lanes];
        _all = aside is null ? _lanes : [.. _lanes, aside];
    }

    /// <inheritdoc cref="JournalWriter.Failure"/>
    public Exception? Failure => _failure;

    /// <inheritdoc cref="JournalWriter.IsStalled"/>
    public bool IsStalled => _isStalled;

    /// <inheritdoc cref="JournalWriter.BytesLeft"/>
    public long BytesLeft => Interlocked.Read(ref _bytesLeft);

    /// <summary>Queues a job. Writer executor.</summary>
    public void Enqueue(JournalJob job)
    {
        JournalLane? lane;
        lock (_lock)
        {
            // While no exclusive step runs, nobody else changes which segments are in use, and this touches no file, so it is done at once. As a step of a lane
            // it would wait for the slowest write or fill, and later records would wait for it. On a full disk it makes space for the records before it, so
            // there it keeps its place in the queue.
            if (job.Kind == JournalJobKind.Recycle && _phase == JournalPhase.Open && !_segments.IsDiskFull)
            {
                _segments.Recycle(job.Number, atOnce: false);
                return;
            }
            _jobs.Enqueue(job);
            lane = FindLaneLocked();
        }
        lane?.Post();
    }

    /// <summary>Chooses the lane's next step; <see cref="LaneState.Idle"/> if there is none. Called by the lane's executor.</summary>
    public LaneState Begin(JournalLane lane)
    {
        lock (_lock)
        {
            BeginLocked(lane);
            // Another lane takes what did not fit into this write, or what waited for a write to end.
            if (_jobs.Count > 0 && (lane.State == LaneState.Writing || (lane.State == LaneState.Filling && !_end.TakesWritesAtOnce)))
                FindLaneLocked()?.Post();
            return lane.State;
        }
    }

    /// <summary>Ends the step that <see cref="Begin"/> chose.</summary>
    /// <param name="lane">The lane.</param>
    /// <param name="failure">
    /// What the step failed with, or null. A write of records that found the disk full is no failure of the journal; after any other exception the content of
    /// the disk is unknown.
    /// </param>
    public void End(JournalLane lane, Exception? failure)
    {
        lock (_lock)
        {
            if (failure is StorageIoException { IsDiskFull: true } && lane.State == LaneState.Writing)
                _phase = _phase.After(JournalEvent.FoundNoRoom);
            else if (failure is not null)
                FailLocked(failure);
            if (lane.State == LaneState.Writing)
                EndWriteLocked(lane.Write!, isDurable: failure is null && _phase != JournalPhase.Failed);
            else if (lane.State is LaneState.Rolling or LaneState.Exclusive)
                _phase = _phase.After(JournalEvent.ExclusiveEnds);
            lane.MoveTo(LaneState.Between);
            if (_phase == JournalPhase.Draining && !IsAnyLocked(LaneState.Writing))
                TakeBackLocked();
            if (_phase != JournalPhase.Exclusive && !IsAnyLocked(LaneState.Filling))
                PublishSpaceLocked();
        }
    }

    /// <summary>
    /// Fails the journal with an exception between two steps of a lane. The lane takes no step any more. If its last step was a write, the write is
    /// reported only if it ended before the exception.
    /// </summary>
    public void Abandon(JournalLane lane, Exception failure)
    {
        lock (_lock)
        {
            FailLocked(failure);
            lane.Abandon();
        }
    }

    /// <summary>Fails the journal because of something that no lane did. Any thread.</summary>
    public void Fail(Exception failure)
    {
        lock (_lock)
            FailLocked(failure);
    }

    /// <summary>Makes the next job, a record for which there is no segment, wait for space. Called in the step <see cref="LaneState.Rolling"/>.</summary>
    public void StallNext()
    {
        lock (_lock)
        {
            Invariant.Check(_phase == JournalPhase.Exclusive, $"A record was stalled in the phase {_phase}.");
            _stalled.AddRecord(_jobs.Dequeue());
        }
    }

    /// <inheritdoc cref="JournalWriter.Stop"/>
    public void Stop(Action quiet)
    {
        lock (_lock)
        {
            if (IsAnyBusyLocked())
            {
                _whenQuiet = quiet;
                return;
            }
        }
        quiet();
    }

    /// <summary>What <see cref="Stop"/> was given, if no lane does anything any more. Returned once. Called by a lane that found no step.</summary>
    public Action? TakeQuiet()
    {
        lock (_lock)
        {
            if (IsAnyBusyLocked())
                return null;
            (var quiet, _whenQuiet) = (_whenQuiet, null);
            return quiet;
        }
    }

    private void FailLocked(Exception failure)
    {
        Invariant.CheckHeld(_lock);
        _failure ??= failure;
        _phase = _phase.After(JournalEvent.Failure);
    }

    private bool IsAnyBusyLocked()
    {
        Invariant.CheckHeld(_lock);
        return Array.Exists(_all, static lane => lane.IsBusy);
    }

    private bool IsAnyLocked(LaneState state)
    {
        Invariant.CheckHeld(_lock);
        foreach (var lane in _all)
        {
            if (lane.State == state)
                return true;
        }
        return false;
    }

    /// <summary>Whether writes of several shards meet on the executors of the lanes now.</summary>
    private bool IsShared => _aside is not null && _shared is { IsOpen: true };

    /// <summary>The lane that should handle what is next in the queue. The caller posts it. Null when a lane will handle it anyway.</summary>
    private JournalLane? FindLaneLocked()
    {
        Invariant.CheckHeld(_lock);
        if (_phase == JournalPhase.Exclusive)
            return null;
        var free = IsShared && _phase == JournalPhase.Open ? FindSharedLaneLocked()
            : IsAnyLocked(LaneState.Posted) ? null
            // Preferably one whose executor is not busy with another shard.
            : Array.Find(_lanes, static lane => !lane.IsBusy && lane.HasIdleExecutor) ?? Array.Find(_lanes, static lane => !lane.IsBusy);
        free?.MoveTo(LaneState.Posted);
        return free;
    }

    /// <summary>The first lane for records, so that writes of many shards meet on its executor. What would keep it from those is for the lane aside.</summary>
    private JournalLane? FindSharedLaneLocked()
    {
        Invariant.CheckHeld(_lock);
        var isShort = IsShortRecordNextLocked();
        if (!isShort && !_aside!.IsBusy)
            return _aside;
        if (Array.Exists(_lanes, static lane => lane.State == LaneState.Posted))
            return null;
        if (isShort)
            return Array.Find(_lanes, static lane => !lane.IsBusy);
        // A long record may find the lane aside at work. Everything else waits for that.
        var isLong = _jobs.Peek() is { Kind: JournalJobKind.Record } next && _end.HasRoomFor(next.Entry!);
        return isLong ? Array.FindLast(_lanes, static lane => !lane.IsBusy) : null;
    }

    /// <summary>Whether a record is next that fits into the current segment and into a block of a shared journal.</summary>
    private bool IsShortRecordNextLocked()
    {
        Invariant.CheckHeld(_lock);
        return _jobs.TryPeek(out var next) && next is { Kind: JournalJobKind.Record, Entry.Bytes: <= SharedLane.WriteBytesMax } && _end.HasRoomFor(next.Entry);
    }

    private void BeginLocked(JournalLane lane)
    {
        Invariant.CheckHeld(_lock);
        // The lane whose step ends the phase looks for the next step itself; the others become idle.
        if (_phase != JournalPhase.Open)
        {
            lane.MoveTo(LaneState.Idle);
            return;
        }
        var isFilling = IsAnyLocked(LaneState.Filling);
        var mayFill = !isFilling && _whenQuiet is null && _segments.WantsFill;
        if (!IsShared)
            BeginAnyLocked(lane, mayFill, isFilling);
        else if (lane == _aside)
            BeginAsideLocked(mayFill, isFilling);
        else
            BeginSharedLocked(lane, mayFill);
    }

    private void BeginAnyLocked(JournalLane lane, bool mayFill, bool isFilling)
    {
        Invariant.CheckHeld(_lock);
        if (mayFill && lane.HasWritten)
            lane.MoveTo(LaneState.Filling);
        else if (TakeRecordsLocked() is { } write)
            lane.BeginWrite(write);
        else if (_jobs.Count == 0)
            lane.MoveTo(mayFill ? LaneState.Filling : LaneState.Idle);
        else if (_writes.Count > 0 || isFilling)
            // A lane that is still working continues with this job.
            lane.MoveTo(LaneState.Idle);
        else
            BeginExclusiveLocked(lane);
    }

    /// <summary>The lane aside leaves short records to the others: it would write them alone.</summary>
    private void BeginAsideLocked(bool mayFill, bool isFilling)
    {
        Invariant.CheckHeld(_lock);
        if (!IsShortRecordNextLocked())
        {
            BeginAnyLocked(_aside!, mayFill, isFilling);
            return;
        }
        _aside!.MoveTo(mayFill ? LaneState.Filling : LaneState.Idle);
        FindLaneLocked()?.Post();
    }

    /// <summary>One of the lanes on which shards meet takes records only.</summary>
    private void BeginSharedLocked(JournalLane lane, bool mayFill)
    {
        Invariant.CheckHeld(_lock);
        if (TakeRecordsLocked() is { } write)
            lane.BeginWrite(write);
        else
            lane.MoveTo(LaneState.Idle);
        // If it is at work, it looks for this itself when that ends.
        if (_aside!.IsBusy || !(mayFill || (_jobs.Count > 0 && _writes.Count == 0)))
            return;
        _aside.MoveTo(LaneState.Posted);
        _aside.Post();
    }

    private void BeginExclusiveLocked(JournalLane lane)
    {
        Invariant.CheckHeld(_lock);
        _phase = _phase.After(JournalEvent.ExclusiveBegins);
        // A record is here only because it does not fit into the segment. It stays next in the queue.
        if (_jobs.Peek() is { Kind: JournalJobKind.Record } record)
            lane.BeginExclusive(LaneState.Rolling, record);
        else
            lane.BeginExclusive(LaneState.Exclusive, _jobs.Dequeue());
    }

    /// <summary>The records that are next, as far as one write takes them. Null if there are none, or if they have to wait.</summary>
    private DurableWrite? TakeRecordsLocked()
    {
        Invariant.CheckHeld(_lock);
        DurableWrite? write = null;
        while (_jobs.TryPeek(out var job) && job.Kind == JournalJobKind.Record)
        {
            if (_stalled.LineCount > 0)
            {
                _stalled.AddRecord(_jobs.Dequeue());
                continue;
            }
            if (write is null && _writes.Count > 0 && !_end.TakesWritesAtOnce)
                break;
            if (!_end.HasRoomFor(job.Entry!) || write?.Takes(job.Entry!.Bytes) == false)
                break;
            write ??= _end.BeginWrite();
            _end.Add(write, _jobs.Dequeue());
        }
        if (write is not null)
            _writes.Enqueue(write);
        return write;
    }

    /// <summary>Reports the longest prefix of writes that are durable (S3).</summary>
    private void EndWriteLocked(DurableWrite write, bool isDurable)
    {
        Invariant.CheckHeld(_lock);
        write.IsDurable = isDurable;
        while (_writes.TryPeek(out var first) && first.IsDurable)
        {
            _completed.Add(first.Jobs);
            _writes.Dequeue();
            _end.Complete(first);
        }
    }

    /// <summary>
    /// Makes the write that found no space, and the unreported writes after it, wait for space. A check follows at once, because the reserve may be
    /// enough.
    /// </summary>
    private void TakeBackLocked()
    {
        Invariant.CheckHeld(_lock);
        Invariant.Check(_stalled.LineCount == 0, $"{_stalled.LineCount} jobs were waiting for disk space while records were being written.");
        _segments.NoteFull();
        _end.TakeBack(_writes.Peek());
        while (_writes.TryDequeue(out var write))
        {
            foreach (var job in write.Jobs)
                _stalled.AddRecord(job);
        }
        _jobs.Enqueue(new JournalJob(JournalJobKind.LookForSpace));
        _phase = _phase.After(JournalEvent.TakenBack);
    }

    private void PublishSpaceLocked()
    {
        Invariant.CheckHeld(_lock);
        _isStalled = _stalled.LineCount > 0;
        Interlocked.Exchange(ref _bytesLeft, _isStalled ? 0 : _segments.BytesLeft);
    }
}
