using System.Collections.Concurrent;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The segments of a shard's journal except the end of the current one (<see cref="JournalEnd"/>): the next one, the live ones, and dead files that are
/// reused. Not locked: <see cref="JournalSchedule"/> lets one lane at a time change segments, and recycles them between such steps.
/// </summary>
/// <remarks>
/// A segment's file is first prepared (<see cref="SegmentPreparation"/>): allocated, then zero-filled in small steps between the writes, where a write
/// into blocks that were never written takes longer (<see cref="StoreOptions.FillSegments"/>). With its durable header it becomes the current one, and with its
/// successor's header a live one, to which nothing is appended any more. When nothing needs it, or a truncation has removed it from the line, it is dead. Then,
/// in the background, its front is erased and it is a spare, which can be prepared again under another number, or it is deleted; a crash before that leaves it
/// to the next open. Before a segment is used, the file of the next one exists (S8; <see cref="SegmentPreparation.Begin"/> creates both), so a missing last
/// segment is noticed.
/// </remarks>
internal sealed class JournalSegments : IDisposable
{
    /// <summary>Spares that are kept in any case, also while space is short.</summary>
    private const int SparesMin = 2;
    private const int SparesMost = 8;

    /// <summary>The shortest segment that is prepared for deletes on a full disk: some of them fit behind its header.</summary>
    private const int DeletesBytesMin = 4 * RecordEnvelope.BlockBytes;

    /// <summary>
    /// Spares while there is space: one for each segment that a checkpoint makes unnecessary, and one more. With fewer, a busy store deletes segments at each
    /// checkpoint, and until the next one fills as many new ones with zeros.
    /// </summary>
    private readonly int _sparesMax;
    private readonly StoreContext _context;
    private readonly string _directory;
    private readonly ControlFile _control;
    private readonly SpaceReserve _reserve;
    private readonly JournalEnd _end;
    private readonly AlignedBuffer _block = new(SegmentHeader.BlockBytes);

    /// <summary>The live segments and the current one, by number.</summary>
    private readonly SortedDictionary<ulong, (ulong Incarnation, long Bytes)> _live = [];

    /// <summary>Segments whose front is erased. The background adds to them.</summary>
    private readonly ConcurrentStack<ulong> _spares = new();

    /// <summary>Dead segments that the background has to retire.</summary>
    private readonly ConcurrentQueue<ulong> _dead = new();
    private readonly IWorkItem _retireDead;
    private readonly IWorkItem _deleteSpares;
    private SegmentPreparation? _next;

    /// <summary>The size of the next segment that is prepared. The background reads it.</summary>
    private volatile int _nextBytes;
    private long _bytes;
    private volatile CurrentSegment _current = new(0, Etag.MaxValue);
    private volatile bool _isSmall;

    /// <summary>The store has been quiescent since the last record that began a segment, so no spares are kept.</summary>
    private volatile bool _isShrunk;
    private volatile bool _isDiskFull;
    private volatile bool _isSpaceShort;

    /// <summary>What the next checkpoint takes from the disk, when last told.</summary>
    private long _checkpointBytes;
    private volatile bool _retiresNoMore;

    /// <summary>Nothing is live yet.</summary>
    /// <param name="context">The shard's executors, disk and bounds.</param>
    /// <param name="directory">The directory of the segments.</param>
    /// <param name="control">Names the replica.</param>
    /// <param name="reserve">Released when the disk is full.</param>
    /// <param name="end">The end of the current segment.</param>
    /// <param name="failed">Called on the checkpoint executor when a dead segment could not be retired.</param>
    public JournalSegments(StoreContext context, string directory, ControlFile control, SpaceReserve reserve, JournalEnd end, Action<Exception> failed)
    {
        _retireDead = new WorkAction(() => RetireDead(failed));
        _deleteSpares = new WorkAction(() => DeleteSpares(failed));
        _sparesMax = (int)Math.Clamp((context.Options.CheckpointJournalBytes / context.Options.SegmentBytesMax) + 1, SparesMin, SparesMost);
        _context = context;
        _directory = directory;
        _control = control;
        _reserve = reserve;
        _end = end;
        _nextBytes = context.Options.SegmentBytesFirst;
    }

    /// <summary>Whether there was no space for the next segment. Any thread.</summary>
    public bool IsDiskFull => _isDiskFull;

    /// <summary>Size of the live segments in bytes. Any thread.</summary>
    public long Bytes => Interlocked.Read(ref _bytes);

    /// <summary>The current segment. Any thread.</summary>
    public CurrentSegment Current => _current;

    /// <summary>Whether neither the current segment nor the next one is larger than the first one of a journal, and there are no spares. Any thread.</summary>
    public bool IsSmall => _isSmall;

    /// <summary>The number of the next segment.</summary>
    public ulong NextNumber { get; private set; }

    /// <summary>How many bytes of records are certain to fit while the disk is full.</summary>
    public long BytesLeft
    {
        get
        {
            var next = _next is not null ? _next.File.Length : _reserve.IsHeld ? _reserve.Bytes : 0;
            return Math.Max(_end.BytesLeft, next - SegmentHeader.BlockBytes);
        }
    }

    /// <summary>
    /// True when half of the current segment is used and the next one is not ready. Before that point a quiescent shard keeps only one segment.
    /// </summary>
    public bool WantsFill => !_isDiskFull && _end.IsHalfUsed && (_next is null || (FillsNext && !_next.IsFilled));

    /// <summary>Adopts the segments of the line that recovery found, and the number of the next one. Called by the opening thread.</summary>
    public void Adopt(IEnumerable<(ulong Number, ulong Incarnation, long Bytes)> line, ulong nextNumber)
    {
        foreach (var (number, incarnation, bytes) in line)
        {
            AddLive(number, incarnation, bytes);
        }
        NextNumber = nextNumber;
    }

    /// <summary>Releases the space reserved for a full disk. False when it was released before, or when deleting the file found no space.</summary>
    public bool ReleaseReserve() => _reserve.Release();

    /// <summary>
    /// Starts a new segment after a record: after an open, and for a truncation. Its header is durable when this returns. During an open the opening
    /// thread calls it.
    /// </summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full; after a full disk the call can be repeated.</exception>
    /// <param name="last">The record before the segment's first.</param>
    /// <param name="predecessor">The segment in which that record ends; 0 when the line begins here.</param>
    /// <param name="predecessorEnd">The offset in it, in bytes.</param>
    public void Start(RecordRef last, ulong predecessor, long predecessorEnd)
    {
        _nextBytes = _context.Options.SegmentBytesFirst;
        if (!TryContinue(SegmentHeader.BlockBytes, usesReserve: true, last, predecessor, predecessorEnd))
            throw new StorageIoException("start a segment in", _directory, "the disk is full", isDiskFull: true);
    }

    /// <summary>
    /// Continues in a new segment that has space for a record. False when there is no disk space for one.
    /// </summary>
    public bool TryRoll(JournalJob record)
    {
        _isShrunk = false;
        return TryContinue(SegmentHeader.BlockBytes + record.Entry!.Bytes, record.UsesReserve, _end.Last, _end.Segment, _end.Offset);
    }

    /// <summary>
    /// Called when the store is quiescent: deletes spares, makes the next segment small, and continues in it if the current one is large, which can be recycled
    /// when checkpoints cover it. What finds no space is left as it is; if that was the header of the next segment, the next record writes it again first.
    /// </summary>
    public void Shrink()
    {
        try
        {
            _isShrunk = true;
            DeleteAllSpares();
            _next?.CutTo(_context.Options.SegmentBytesFirst);
            if (_end.IsLongerThan(_context.Options.SegmentBytesFirst))
            {
                _nextBytes = _context.Options.SegmentBytesFirst;
                var next = Prepare(_nextBytes, SegmentHeader.BlockBytes);
                next.CutTo(_nextBytes);
                Use(next, _end.Last, _end.Segment, _end.Offset);
            }
            NoteSize();
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    /// <summary>Takes one step in preparing the next segment. It changes nothing that writes into the current one use, so they may run concurrently.</summary>
    public void FillStep(AlignedBuffer buffer)
    {
        try
        {
            var next = Prepare(BytesToPrepare, SegmentHeader.BlockBytes);
            if (FillsNext)
                next.FillStep(buffer);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    /// <summary>
    /// Called when the disk was full: checks whether there is space for the smallest segment and the reserve, besides what the checkpoint takes. That comes
    /// first, because nothing else frees anything. If there is less, the disk still counts as full, and deletes get a segment of what there is.
    /// </summary>
    public void LookForSpace()
    {
        try
        {
            LeaveRoomForCheckpoint();
            _isDiskFull = !HasRoomBesideCheckpoint();
            if (_isDiskFull)
            {
                PrepareForDeletes();
                return;
            }
            _ = Prepare(_context.Options.SegmentBytesMin, SegmentHeader.BlockBytes);
            _reserve.Renew();
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    /// <summary>
    /// Called when the disk was full: if the checkpoint lacks space, gives back what the journal has and does not need, which is the rest of a long segment,
    /// another one that is prepared, and spares. What finds no space for that is left as it is.
    /// </summary>
    public void LeaveRoomForCheckpoint()
    {
        if (!HasRoomBesideCheckpoint())
            TryWithinRoom(GiveBackUnused);
    }

    /// <summary>
    /// Notes whether the disk has little space besides what the store needs for its next checkpoint. Then spares beyond the fewest are deleted in the
    /// background, and only the smallest segments are prepared. Writer executor.
    /// </summary>
    /// <param name="isShort">Whether there is little.</param>
    /// <param name="checkpointBytes">What that checkpoint takes from the disk.</param>
    public void NoteSpace(bool isShort, long checkpointBytes)
    {
        Interlocked.Exchange(ref _checkpointBytes, checkpointBytes);
        var wasShort = _isSpaceShort;
        _isSpaceShort = isShort;
        if (isShort && !wasShort)
            _context.Checkpoints.Post(_deleteSpares);
    }

    /// <summary>Records that a write found no space.</summary>
    public void NoteFull() => _isDiskFull = true;

    /// <summary>Takes the segments numbered below this off the line. Their files are retired afterwards.</summary>
    /// <param name="lowest">The first segment that is kept.</param>
    /// <param name="atOnce">Whether the files are retired before this returns, and not in the background.</param>
    public void Recycle(ulong lowest, bool atOnce)
    {
        foreach (var number in _live.Keys.Where(number => number < lowest && number != _end.Segment).ToArray())
            Drop(number, atOnce);
    }

    /// <summary>Retires the segments between a predecessor and the current one, which a truncation removed from the line.</summary>
    public void DropBehind(ulong predecessor)
    {
        foreach (var number in _live.Keys.Where(number => number > predecessor && number < _end.Segment).ToArray())
            Drop(number, atOnce: _isDiskFull);
    }

    /// <summary>
    /// Reuses a dead segment's file for a later segment, or deletes it. Beyond the fewest spares it is deleted also if it is shorter than the next segment:
    /// those that a journal begins with, which come first, would leave no room for long ones. If there is no space for either, the file stays as it is, outside
    /// the line, and the next open retires it. During an open the opening thread calls it, after <see cref="Start"/>; later the checkpoint executor or a lane
    /// does.
    /// </summary>
    public void Retire(ulong number)
    {
        var path = SegmentName.PathOf(_directory, number);
        var (isErased, bytesMin) = (false, _spares.Count < SparesMin ? 0 : _nextBytes);
        if (!_isShrunk && _spares.Count < (_isSpaceShort || _isDiskFull ? SparesMin : _sparesMax)
            && TryWithinRoom(() => isErased = SegmentPreparation.TryEraseFront(_context.Files, path, bytesMin)) && isErased)
        {
            _spares.Push(number);
            _isSmall = false;
        }
        else if (!TryWithinRoom(() => _context.Files.Delete(path)))
            NoteFull();
    }

    /// <summary>Leaves the segments that are dead to the next open. Any thread.</summary>
    public void EndRetiring() => _retiresNoMore = true;

    /// <inheritdoc/>
    public void Dispose()
    {
        EndRetiring();
        _next?.Dispose();
        _block.Dispose();
    }

    /// <summary>
    /// Prepares a segment and makes it the current one, with the space of the reserve if necessary. False when there is no space. It remains the next segment
    /// then, and if it was its header that found none, the end is sealed.
    /// </summary>
    private bool TryContinue(int bytesMin, bool usesReserve, RecordRef last, ulong predecessor, long predecessorEnd)
    {
        while (PrepareOrMakeRoom(bytesMin, usesReserve) is { } next)
        {
            try
            {
                Use(next, last, predecessor, predecessorEnd);
                return true;
            }
            catch (StorageIoException exception) when (exception.IsDiskFull)
            {
                _isDiskFull = true;
            }
            if (!usesReserve || !_reserve.Release())
                return false;
        }
        return false;
    }

    /// <summary>
    /// Makes the prepared segment the current one, and the current one live. Its header is written first, then records. The file of its successor exists since
    /// the preparation. A header whose write fails may have arrived, so before it is written the end is sealed.
    /// </summary>
    private void Use(SegmentPreparation next, RecordRef last, ulong predecessor, long predecessorEnd)
    {
        Invariant.Check(next == _next && !_live.ContainsKey(next.Number), $"Segment {next.Number} was used although it is not the prepared one, or is in use.");
        // If the predecessor was recycled since the truncation was queued, both meta pages cover its last record, and the line begins with this segment.
        if (!_live.TryGetValue(predecessor, out var before))
            (predecessor, predecessorEnd) = (0, 0);
        var header = new SegmentHeader(
            next.Number,
            NewIncarnation(next.Number),
            _control.State.ReplicaId,
            _control.State.Shard,
            predecessor,
            before.Incarnation,
            predecessorEnd,
            last.Etag,
            last.Checksum);
        header.WriteTo(_block.Span, SegmentHeader.VersionFor(_context.Options));
        var wasShared = _end.IsMostlyShared;
        _end.Seal();
        next.File.WriteDurable(_block.Span, 0);
        var file = next.Release();
        _next = null;
        _end.Continue(file, header, last);
        AddLive(header.Number, header.Incarnation, file.Length);
        _current = new CurrentSegment(header.Number, last.Etag);
        NextNumber = header.Number + 1;
        // Without zeros a long one costs no more than a short one, and with many shards the time to make one counts.
        _nextBytes = (int)Math.Min(
            (wasShared ? 4 : 2) * Math.Max(file.Length, _context.Options.SegmentBytesFirst), _context.Options.SegmentBytesMax);
        NoteSize();
    }

    private void NoteSize()
    {
        var bytes = _context.Options.SegmentBytesFirst;
        _isSmall = _spares.IsEmpty && !_end.IsLongerThan(bytes) && (_next is null || _next.File.Length <= bytes);
    }

    /// <summary>
    /// Differs from every other incarnation of this replica because it contains the number. A record therefore names its segment even if the header is
    /// lost. The clock and the replica id keep copied files apart.
    /// </summary>
    private ulong NewIncarnation(ulong number)
    {
        var mixed = number + (_control.State.ReplicaId.Value * 0x9E37_79B9_7F4A_7C15) + (ulong)_context.Time.GetUtcNow().UtcTicks;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return SegmentHeader.IncarnationOf(number, mixed ^ (mixed >> 31));
    }

    /// <summary>The next segment. On a full disk it is only as large as necessary; null when there is no space for that either.</summary>
    private SegmentPreparation? PrepareOrMakeRoom(int bytesMin, bool usesReserve)
    {
        try
        {
            return Prepare(Math.Max(bytesMin, BytesToPrepare), bytesMin);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
        if (usesReserve)
            _reserve.Release();
        try
        {
            return Prepare(bytesMin, bytesMin);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            return null;
        }
    }

    /// <summary>
    /// Whether zeros are written into the next segment. They make durable writes faster, and records that a shared journal makes durable are not such writes:
    /// the zeros would be as many bytes again as the journal has.
    /// </summary>
    private bool FillsNext => _context.Options.FillSegments && !_end.IsMostlyShared;

    /// <summary>The size of the next segment if there is space for it. Where that is short, a long one would take it from the next checkpoint.</summary>
    private int BytesToPrepare => _isDiskFull || _isSpaceShort ? _context.Options.SegmentBytesMin : _nextBytes;

    /// <summary>Whether there is space for what the journal lacks, the smallest segment and the reserve, besides the checkpoint.</summary>
    private bool HasRoomBesideCheckpoint() =>
        RoomBesideCheckpoint >= (_next is null ? _context.Options.SegmentBytesMin : 0) + (_reserve.IsHeld ? 0 : _reserve.Bytes);

    /// <summary>What the checkpoint leaves of the free space. A reserve that is held is there for the checkpoint. Negative if it lacks space.</summary>
    private long RoomBesideCheckpoint =>
        _context.Files.AvailableBytes(_directory) - Math.Max(0, Interlocked.Read(ref _checkpointBytes) - (_reserve.IsHeld ? _reserve.Bytes : 0));

    /// <summary>
    /// Prepares the next segment while the disk stays full, if the reserve is gone: of half of what the checkpoint leaves, and no longer than the smallest one.
    /// Without it no delete is accepted once the current segment is used up. That segment is recycled only when it has a successor, and pages become free only
    /// by further deletes, so the disk would stay full.
    /// </summary>
    private void PrepareForDeletes()
    {
        var bytes = (int)Math.Min(_context.Options.SegmentBytesMin, ((_next?.File.Length ?? 0) + RoomBesideCheckpoint) / 2);
        if (!_reserve.IsHeld && bytes >= DeletesBytesMin)
            _ = Prepare(bytes, bytes);
    }

    /// <summary>Gives back spares, and what a first segment would not have of the next one and of the rest of the current one.</summary>
    private void GiveBackUnused()
    {
        DeleteAllSpares();
        _next?.CutTo(_context.Options.SegmentBytesMin);
        if (_live.TryGetValue(_end.Segment, out var current))
        {
            var bytes = _end.CutUnused(_context.Options.SegmentBytesMin);
            _live[_end.Segment] = (current.Incarnation, bytes);
            Interlocked.Add(ref _bytes, bytes - current.Bytes);
        }
        NoteSize();
    }

    private void DeleteAllSpares()
    {
        while (_spares.TryPop(out var spare))
        {
            try
            {
                _context.Files.Delete(SegmentName.PathOf(_directory, spare));
            }
            catch
            {
                // On some file systems deleting needs space. It stays a spare, and is not lost sight of.
                _spares.Push(spare);
                throw;
            }
        }
    }

    private SegmentPreparation Prepare(int bytes, int bytesMin)
    {
        _next ??= SegmentPreparation.Begin(_context.Files, _directory, NextNumber, RecordEnvelope.RoundUp(bytes), _spares);
        _next.File.GrowTo(RecordEnvelope.RoundUp(bytesMin));
        NoteSize();
        return _next;
    }

    /// <summary>Makes a change; false when there was no space for it.</summary>
    private static bool TryWithinRoom(Action change)
    {
        try
        {
            change();
            return true;
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            return false;
        }
    }

    private void AddLive(ulong number, ulong incarnation, long bytes)
    {
        _live[number] = (incarnation, bytes);
        Interlocked.Add(ref _bytes, bytes);
    }

    /// <summary>
    /// Takes a segment off the line. Its file is retired in the background, because the journal would wait for some milliseconds per segment, or at once on a
    /// full disk, because there the journal waits for the space.
    /// </summary>
    private void Drop(ulong number, bool atOnce)
    {
        Invariant.Check(number != _end.Segment && _live.ContainsKey(number), $"Segment {number} was dropped although it is the current one, or not in use.");
        Interlocked.Add(ref _bytes, -_live[number].Bytes);
        _live.Remove(number);
        _dead.Enqueue(number);
        if (!atOnce)
        {
            _context.Checkpoints.Post(_retireDead);
            return;
        }
        // The oldest first, as always.
        while (_dead.TryDequeue(out var dead))
            Retire(dead);
    }

    /// <summary>Deletes spares beyond the fewest. Checkpoint executor.</summary>
    private void DeleteSpares(Action<Exception> failed)
    {
        try
        {
            while (!_retiresNoMore && _spares.Count > SparesMin && _spares.TryPop(out var spare))
            {
                if (TryWithinRoom(() => _context.Files.Delete(SegmentName.PathOf(_directory, spare))))
                    continue;
                // The file stays a spare. Deletes that need not write anything first make the room.
                _spares.Push(spare);
                return;
            }
        }
        catch (Exception exception)
        {
            failed(exception);
        }
    }

    /// <summary>Retires one dead segment. Checkpoint executor.</summary>
    private void RetireDead(Action<Exception> failed)
    {
        if (_retiresNoMore || !_dead.TryDequeue(out var number))
            return;
        try
        {
            Retire(number);
        }
        catch (Exception exception)
        {
            failed(exception);
        }
    }
}

/// <summary>The segment that takes the next record. Its header is durable.</summary>
/// <param name="Number">Its number.</param>
/// <param name="After">The record before its first.</param>
internal sealed record CurrentSegment(ulong Number, Etag After);
