using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The segments of a shard's journal: the current one, which receives records, its successor in preparation, the live ones before it, and dead files that
/// are reused. Not locked: <see cref="JournalWriter"/> lets one lane at a time change segments.
/// </summary>
/// <remarks>
/// Before a segment is used, the file of the next one exists (S8; <see cref="SegmentPreparation.Begin"/> creates both), so a missing last segment is
/// noticed. The next segment is allocated and zero-filled in small steps between the writes, because a write into blocks that were never written takes
/// half as long again.
/// </remarks>
internal sealed class JournalSegments : IDisposable
{
    private const int SparesMax = 2;
    private readonly StoreContext _context;
    private readonly string _directory;
    private readonly ControlFile _control;
    private readonly SpaceReserve _reserve;
    private readonly AlignedBuffer _block = new(SegmentHeader.BlockBytes);
    private readonly SortedDictionary<ulong, ulong> _incarnations = [];
    private readonly Stack<ulong> _spares = new();
    private IStorageFile? _current;
    private SegmentHeader _header;
    private long _offset;
    private SegmentPreparation? _next;
    private bool _nextIsFilled;
    private int _nextBytes;
    private long _bytes;
    private volatile bool _isDiskFull;

    public JournalSegments(StoreContext context, string directory, ControlFile control, SpaceReserve reserve)
    {
        _context = context;
        _directory = directory;
        _control = control;
        _reserve = reserve;
        _nextBytes = context.Options.SegmentBytesMin;
    }

    /// <summary>Whether there was no space for the next segment. Any thread.</summary>
    public bool IsDiskFull => _isDiskFull;

    /// <summary>Size of the live segments in bytes. Any thread.</summary>
    public long Bytes => Interlocked.Read(ref _bytes);

    /// <summary>The number of the next segment.</summary>
    public ulong NextNumber { get; private set; }

    /// <summary>How many bytes of records are certain to fit while the disk is full.</summary>
    public long BytesLeft
    {
        get
        {
            var next = _next is not null ? _next.File.Length : _reserve.IsHeld ? _reserve.Bytes : 0;
            return Math.Max(_current!.Length - _offset, next - SegmentHeader.BlockBytes);
        }
    }

    /// <summary>True when half of the current segment is used and the next one is not ready. Before that point an idle shard keeps only one segment.</summary>
    public bool WantsFill => !_isDiskFull && !_nextIsFilled && _offset >= _current!.Length / 2;

    /// <summary>Adopts the segments of the line that recovery found, and the number of the next one. Called by the opening thread.</summary>
    public void Adopt(IEnumerable<(ulong Number, ulong Incarnation, long Bytes)> line, ulong nextNumber)
    {
        foreach (var (number, incarnation, bytes) in line)
        {
            _incarnations[number] = incarnation;
            Interlocked.Add(ref _bytes, bytes);
        }
        NextNumber = nextNumber;
    }

    /// <summary>
    /// Whether several writes into the current segment may be in flight. Not through the page cache: the kernel reports a write error once, so of two
    /// concurrent syncs of a file the wrong one may get it.
    /// </summary>
    public bool TakesWritesAtOnce => _current!.IsDirect;

    /// <summary>Whether a record of this size, including its envelope, fits into the current segment.</summary>
    public bool HasRoomFor(int bytes) => _offset + bytes <= _current!.Length;

    /// <summary>
    /// Begins a write at the end of the current segment; <see cref="Take"/> reserves its space. <paramref name="durable"/> is as in
    /// <see cref="RecordEnvelope"/>.
    /// </summary>
    public JournalWrite BeginWrite(UInt128 durable, in RecordRef previous) => new(_current!, _header.Number, _header.Incarnation, durable, _offset, previous);

    /// <summary>Reserves space in the current segment.</summary>
    public void Take(int bytes) => _offset += bytes;

    /// <summary>Returns the space reserved from an offset on, because the write into it found the disk full.</summary>
    public void TakeBack(long offset) => _offset = offset;

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
        _nextBytes = _context.Options.SegmentBytesMin;
        if (PrepareOrMakeRoom(SegmentHeader.BlockBytes, usesReserve: true) is not { } next)
            throw new StorageIoException("start a segment in", _directory, "the disk is full", isDiskFull: true);
        Use(next, last, predecessor, predecessorEnd);
    }

    /// <summary>
    /// Continues in a new segment that has space for a record of this size, including its envelope. False when there is no disk space for one.
    /// </summary>
    public bool TryRoll(RecordRef last, int bytes, bool usesReserve)
    {
        if (PrepareOrMakeRoom(SegmentHeader.BlockBytes + bytes, usesReserve) is not { } next)
            return false;
        try
        {
            Use(next, last, _header.Number, _offset);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            // Its header was not written; it remains the next segment.
            _isDiskFull = true;
            return false;
        }
        return true;
    }

    /// <summary>Takes one step in preparing the next segment. It changes nothing that writes into the current one use, so they may run concurrently.</summary>
    public void FillStep(AlignedBuffer buffer)
    {
        try
        {
            _nextIsFilled = !Prepare(_nextBytes, SegmentHeader.BlockBytes).FillStep(buffer);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    /// <summary>Called when the disk was full: checks whether there is space for the next segment and the reserve.</summary>
    public void LookForSpace()
    {
        try
        {
            _ = Prepare(_nextBytes, SegmentHeader.BlockBytes);
            _reserve.Renew();
            _isDiskFull = false;
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    /// <summary>Records that a write found no space.</summary>
    public void NoteFull() => _isDiskFull = true;

    /// <summary>Retires the segments numbered below this.</summary>
    public void Recycle(ulong lowest)
    {
        foreach (var number in _incarnations.Keys.Where(number => number < lowest && number != _header.Number).ToArray())
            Drop(number);
    }

    /// <summary>Retires the segments between a predecessor and the current one, which a truncation removed from the line.</summary>
    public void DropBehind(ulong predecessor)
    {
        foreach (var number in _incarnations.Keys.Where(number => number > predecessor && number < _header.Number).ToArray())
            Drop(number);
    }

    /// <summary>
    /// Reuses a dead segment's file for a later segment, or deletes it. If there is no space for either, the file stays as it is, outside the line, and
    /// the next open retires it. During an open the opening thread calls it, after <see cref="Start"/>.
    /// </summary>
    public void Retire(ulong number)
    {
        var path = SegmentName.PathOf(_directory, number);
        if (_spares.Count < SparesMax && TryWithinRoom(() => SegmentPreparation.EraseFront(_context.Files, path)))
            _spares.Push(number);
        else if (!TryWithinRoom(() => _context.Files.Delete(path)))
            NoteFull();
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _current?.Dispose();
        _next?.Dispose();
        _block.Dispose();
    }

    /// <summary>
    /// Makes the prepared segment the current one. Its header is written first, then records. The file of its successor exists since the preparation.
    /// </summary>
    private void Use(SegmentPreparation next, RecordRef last, ulong predecessor, long predecessorEnd)
    {
        var header = new SegmentHeader(
            next.Number,
            NewIncarnation(next.Number),
            _control.State.ReplicaId,
            _control.State.Shard,
            predecessor,
            predecessor == 0 ? 0 : _incarnations[predecessor],
            predecessorEnd,
            last.Etag,
            last.Checksum);
        header.WriteTo(_block.Span);
        next.File.Write(_block.Span, 0);
        _current?.Dispose();
        _current = next.Release();
        _next = null;
        _nextIsFilled = false;
        _header = header;
        _offset = SegmentHeader.BlockBytes;
        _incarnations[header.Number] = header.Incarnation;
        Interlocked.Add(ref _bytes, _current.Length);
        NextNumber = header.Number + 1;
        _nextBytes = (int)Math.Min(2 * Math.Max(_current.Length, _context.Options.SegmentBytesMin), _context.Options.SegmentBytesMax);
    }

    /// <summary>
    /// Differs from every other incarnation of this replica because it contains the number. A record therefore names its segment even if the header is
    /// lost. The clock and the replica id keep copied files apart.
    /// </summary>
    private ulong NewIncarnation(ulong number)
    {
        var mixed = number + (_control.State.ReplicaId * 0x9E37_79B9_7F4A_7C15) + (ulong)_context.Time.GetUtcNow().UtcTicks;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return SegmentHeader.IncarnationOf(number, mixed ^ (mixed >> 31));
    }

    /// <summary>The next segment. On a full disk it is only as large as necessary; null when there is no space for that either.</summary>
    private SegmentPreparation? PrepareOrMakeRoom(int bytesMin, bool usesReserve)
    {
        try
        {
            return Prepare(Math.Max(bytesMin, _nextBytes), bytesMin);
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

    private SegmentPreparation Prepare(int bytes, int bytesMin)
    {
        _next ??= SegmentPreparation.Begin(_context.Files, _directory, NextNumber, RecordEnvelope.RoundUp(bytes), _spares);
        _next.GrowTo(RecordEnvelope.RoundUp(bytesMin));
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

    private void Drop(ulong number)
    {
        using (var file = _context.Files.Open(SegmentName.PathOf(_directory, number), new StorageFileOptions(StorageFileMode.OpenExisting)))
            Interlocked.Add(ref _bytes, -file.Length);
        _incarnations.Remove(number);
        Retire(number);
    }
}
