using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Shared;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Writes a shard's journal and control file on its lanes' executors. <see cref="JournalSchedule"/> decides which lane takes which step, and this executes
/// the steps; records become durable in <see cref="DurableWrite.WriteDurable"/>. Writes are reported in record order: a reported write means that all
/// records before it are durable too. The first failure stops the journal: nothing after it is reported, and no write is retried. A full disk is not a
/// failure. Records without a segment, or whose write found no space, wait (<see cref="StalledJobs"/>), together with the truncations after them, until
/// <see cref="JournalJobKind.LookForSpace"/> or a recycled segment makes space. Control states overtake these records.
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
    private readonly ControlFile _control;
    private readonly JournalEnd _end = new();
    private readonly JournalSegments _segments;
    private readonly TruncatedRecords _truncated;
    private readonly StalledJobs _stalled;
    private readonly JournalSchedule _schedule;
    private readonly string _directory;

    /// <summary>The lanes' writes as the shared journal takes them; null if there is none.</summary>
    private readonly Dictionary<JournalLane, LaneWrite>? _sharedWrites;

    /// <summary>Nothing is written before <see cref="StartSegment"/>.</summary>
    /// <param name="context">The shard's executors, disk and bounds.</param>
    /// <param name="directory">The directory of the segments.</param>
    /// <param name="asideDirectory">The directory in which truncated records are kept.</param>
    /// <param name="control">The open control file, owned by the writer from here on.</param>
    /// <param name="reserve">Released when the disk is full.</param>
    /// <param name="completions">Posted to the writer executor when <see cref="Completed"/> has jobs: <c>JournalCompletions.Take</c>.</param>
    public JournalWriter(
        StoreContext context, string directory, string asideDirectory, ControlFile control, SpaceReserve reserve, IWorkItem completions)
    {
        _context = context;
        _control = control;
        _segments = new JournalSegments(context, directory, control, reserve, _end, OnRetireFailed);
        _truncated = new TruncatedRecords(context, directory, asideDirectory);
        Completed = new CompletedJobs(_segments, context.Writer, completions, context.Time);
        _stalled = new StalledJobs(context, control, _end, _segments, _truncated, Completed);
        var lanes = context.JournalLanes.Select(on => new JournalLane(on, Run)).ToArray();
        var aside = context.JournalAside is { } executor ? new JournalLane(executor, Run) : null;
        _schedule = new JournalSchedule(_end, _segments, _stalled, Completed, lanes, context.SharedJournal, aside);
        _directory = directory;
        if (context.SharedJournal is { } shared)
            _sharedWrites = lanes.ToDictionary(static lane => lane, lane => new LaneWrite(this, shared, lane));
    }

    /// <summary>The jobs that are done.</summary>
    public CompletedJobs Completed { get; }

    /// <summary>What stopped the journal; null while it works. Any thread.</summary>
    public Exception? Failure => _schedule.Failure;

    /// <inheritdoc cref="JournalSegments.IsDiskFull"/>
    public bool IsDiskFull => _segments.IsDiskFull;

    /// <summary>Whether records wait for space. Any thread.</summary>
    public bool IsStalled => _schedule.IsStalled;

    /// <summary>How many bytes of records are certain to fit while the disk is full. Any thread.</summary>
    public long BytesLeft => _schedule.BytesLeft;

    /// <inheritdoc cref="JournalSegments.Bytes"/>
    public long Bytes => _segments.Bytes;

    /// <inheritdoc cref="JournalSegments.Current"/>
    public CurrentSegment Current => _segments.Current;

    /// <inheritdoc cref="JournalSegments.IsSmall"/>
    public bool IsSmall => _segments.IsSmall;

    /// <summary>Queues a job. Writer executor.</summary>
    public void Enqueue(JournalJob job) => _schedule.Enqueue(job);

    /// <inheritdoc cref="JournalSegments.NoteSpace"/>
    public void NoteSpace(bool isShort, long checkpointBytes) => _segments.NoteSpace(isShort, checkpointBytes);

    /// <inheritdoc cref="JournalSegments.Adopt"/>
    public void Adopt(IEnumerable<(ulong Number, ulong Incarnation, long Bytes)> line, ulong nextNumber) => _segments.Adopt(line, nextNumber);

    /// <inheritdoc cref="JournalSegments.Retire"/>
    public void Retire(ulong number) => _segments.Retire(number);

    /// <inheritdoc cref="JournalSegments.Start"/>
    public void StartSegment(RecordRef last, ulong predecessor, long predecessorEnd) => _segments.Start(last, predecessor, predecessorEnd);

    /// <summary>
    /// Nothing may be queued after this. Calls <paramref name="quiet"/>, on any executor, when all queued jobs for which there is space are done and
    /// nothing of this journal is written any more. Writer executor.
    /// </summary>
    public void Stop(Action quiet) => _schedule.Stop(quiet);

    /// <summary>
    /// Syncs what only a shared journal has durable of the segments, after <see cref="Stop"/>. Then the directory is whole and may be moved: a recovery would
    /// not find the segments elsewhere.
    /// </summary>
    /// <exception cref="StorageIoException">An I/O error, with which the shared journal has failed, too.</exception>
    public void Settle() => _context.SharedJournal?.Settle(_directory);

    /// <summary>
    /// Called when the engine has failed: nothing is written that no lane has begun, because nobody gets an answer for it, and dead segments stay for the next
    /// open. Writer executor.
    /// </summary>
    public void End(Exception failure)
    {
        _segments.EndRetiring();
        _schedule.Fail(failure);
    }

    /// <summary>Call only when the executors no longer run anything of this shard.</summary>
    public void Dispose()
    {
        _end.Dispose();
        _segments.Dispose();
        _truncated.Dispose();
        _control.Dispose();
    }

    /// <summary>
    /// Takes steps on a lane's executor until there are none. What failed is reported to the owner, which stops the engine. An invariant that is broken
    /// between two steps is such a failure too: it must not end the thread, on which the journals of other shards depend.
    /// </summary>
    private void Run(JournalLane lane)
    {
        try
        {
            while (_schedule.Begin(lane) != LaneState.Idle)
            {
                // The lane goes on when the shared journal has ended the write.
                if (_sharedWrites?.GetValueOrDefault(lane)?.TryBegin() == true)
                    return;
                _schedule.End(lane, Execute(lane));
                Report();
            }
        }
        catch (Exception exception)
        {
            _schedule.Abandon(lane, exception);
        }
        Report();
        _schedule.TakeQuiet()?.Invoke();
    }

    /// <summary>
    /// Ends a write that the shared journal had. An invariant that is broken by it is a failure too, with which the lane becomes idle; false then.
    /// </summary>
    private bool TryEndWrite(JournalLane lane, Exception? failure)
    {
        try
        {
            _schedule.End(lane, failure);
            Report();
            return true;
        }
        catch (Exception exception)
        {
            _schedule.Abandon(lane, exception);
        }
        Report();
        _schedule.TakeQuiet()?.Invoke();
        return false;
    }

    /// <summary>A dead segment could not be retired. Checkpoint executor.</summary>
    private void OnRetireFailed(Exception failure)
    {
        _schedule.Fail(failure);
        Report();
    }

    private void Report() => Completed.Report(_schedule.Failure is not null);

    /// <summary>Executes the lane's step without the lock. Returns what it failed with, or null.</summary>
    private Exception? Execute(JournalLane lane)
    {
        try
        {
            var staging = StagingPool.Rent(lane.State == LaneState.Writing ? lane.Write!.Bytes : 0);
            try
            {
                Execute(lane, staging);
            }
            finally
            {
                StagingPool.Return(staging);
            }
            return null;
        }
        catch (Exception exception)
        {
            return exception;
        }
    }

    private void Execute(JournalLane lane, AlignedBuffer staging)
    {
        switch (lane.State)
        {
            case LaneState.Writing:
                lane.Write!.WriteDurable(staging, _context);
                break;
            case LaneState.Filling:
                _segments.FillStep(staging);
                break;
            case LaneState.Rolling:
                if (!_segments.TryRoll(lane.Job!))
                    _schedule.StallNext();
                break;
            default:
                ExecuteExclusive(lane.Job!, staging);
                break;
        }
    }

    private void ExecuteExclusive(JournalJob job, AlignedBuffer staging)
    {
        switch (job.Kind)
        {
            case JournalJobKind.Control:
                _stalled.AddControl(job);
                _stalled.ContinueControls();
                break;
            case JournalJobKind.Truncation:
                _stalled.AddTruncation(job);
                _stalled.Continue(staging);
                break;
            case JournalJobKind.Recycle:
                _segments.Recycle(job.Number, atOnce: _segments.IsDiskFull);
                _stalled.Continue(staging);
                Completed.Add(job);
                break;
            case JournalJobKind.Shrink:
                if (_stalled.IsEmpty)
                    _segments.Shrink();
                Completed.Add(job);
                break;
            default:
                _stalled.Continue(staging);
                if (_stalled.IsEmpty)
                    _segments.LookForSpace();
                else
                    _segments.LeaveRoomForCheckpoint();
                Completed.Add(job);
                break;
        }
    }

    /// <summary>
    /// The write of one lane, given to the shared journal: the lane's executor goes on with other shards until it has ended. A lane has one at a time.
    /// </summary>
    private sealed class LaneWrite(JournalWriter writer, SharedJournal shared, JournalLane lane) : SharedWrite
    {
        private readonly StoreContext _context = writer._context;
        private readonly SharedLane _shared = shared.LaneOf(lane.Executor);
        private DurableWrite? _write;
        private UnsyncedFile? _file;
        private SharedEntry _entry;
        private long _packed;
        private bool _goesOn;

        /// <inheritdoc/>
        public override SharedEntry Entry => _entry;

        /// <inheritdoc/>
        public override UnsyncedFile File => _file!;

        /// <summary>Gives the lane's step to the shared journal if it is a write that others may join.</summary>
        public bool TryBegin()
        {
            if (lane.State != LaneState.Writing || lane.Write!.Bytes > SharedLane.WriteBytesMax)
                return false;
            _write = lane.Write;
            _shared.Add(this);
            return true;
        }

        /// <inheritdoc/>
        public override int Bytes => _write!.PackedBytes;

        /// <inheritdoc/>
        public override bool TryJoin()
        {
            try
            {
                _file = _write!.UnsyncedIn(shared);
                _entry = _write.EntryIn(_file);
                return true;
            }
            catch (StorageIoException)
            {
                // Too many open files, for example. The segment itself is open.
                return false;
            }
        }

        /// <inheritdoc/>
        public override void Pack(Span<byte> destination)
        {
            _packed = _context.Observer.IsWatching ? _context.Time.GetTimestamp() : 0;
            _write!.Pack(destination);
        }

        /// <inheritdoc/>
        public override void WriteDurable() => Stage(static (own, staging) => own._write!.WriteDurable(staging, own._context));

        /// <inheritdoc/>
        public override void WriteCached()
        {
            _write!.Observe(_context, _packed);
            Stage(static (own, staging) => own._write!.WriteCached(staging, own._file!));
        }

        /// <inheritdoc/>
        public override void End(Exception? failure)
        {
            (_write, _file, _entry) = (null, null, default);
            _goesOn = writer.TryEndWrite(lane, failure);
        }

        /// <inheritdoc/>
        public override void Continue()
        {
            if (_goesOn)
                writer.Run(lane);
        }

        private void Stage(Action<LaneWrite, AlignedBuffer> write)
        {
            var staging = StagingPool.Rent(_write!.Bytes);
            try
            {
                write(this, staging);
            }
            finally
            {
                StagingPool.Return(staging);
            }
        }
    }
}
