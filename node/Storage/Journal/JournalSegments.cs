using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The segments of a shard's journal: the current one, which records go into, its successor in preparation, the live ones behind it and
/// the files of dead ones that are used again. Not locked: <see cref="JournalWriter"/> lets one lane at a time change segments.
/// </summary>
/// <remarks>
/// Before a segment is used the next one's file exists (S8; <see cref="SegmentPreparation.Begin"/> creates both), so that a missing last segment
/// shows. The next segment is allocated and zero-filled in small steps between the writes: a write into blocks that were never written costs
/// half as much again.
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

    /// <summary>There was no room for the next segment. Any thread.</summary>
    public bool IsDiskFull => _isDiskFull;

    /// <summary>Size of the live segments in bytes. Any thread.</summary>
    public long Bytes => Interlocked.Read(ref _bytes);

    /// <summary>The number that the next segment gets.</summary>
    public ulong NextNumber { get; private set; }

    /// <summary>How many bytes of records go in for certain while the disk is full.</summary>
    public long BytesLeft
    {
        get
        {
            var next = _next is not null ? _next.File.Length : _reserve.IsHeld ? _reserve.Bytes : 0;
            return Math.Max(_current!.Length - _offset, next - SegmentHeader.BlockBytes);
        }
    }

    /// <summary>Half of the current segment is used, and the next is not ready: an idle shard holds one segment.</summary>
    public bool WantsFill => !_isDiskFull && !_nextIsFilled && _offset >= _current!.Length / 2;

    /// <summary>Takes over the segments of the line that recovery found, and the number that the next one gets. By the opening thread.</summary>
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
    /// Whether several writes into the current segment may be in flight. Not through the page cache: of two syncs of a file that run at once the system may tell the wrong one that it
    /// failed, since it tells each failure once.
    /// </summary>
    public bool TakesWritesAtOnce => _current!.IsDirect;

    /// <summary>Whether a record of this size, envelope included, goes into the current segment.</summary>
    public bool HasRoomFor(int bytes) => _offset + bytes <= _current!.Length;

    /// <summary>A write at the end of the current segment; <see cref="Take"/> gives it room. <paramref name="durable"/> as in <see cref="RecordEnvelope"/>.</summary>
    public JournalWrite BeginWrite(UInt128 durable, in RecordRef previous) => new(_current!, _header.Number, _header.Incarnation, durable, _offset, previous);

    /// <summary>Gives room away.</summary>
    public void Take(int bytes) => _offset += bytes;

    /// <summary>Takes room back that was given away from there on, since what went there found none on the disk.</summary>
    public void TakeBack(long offset) => _offset = offset;

    /// <summary>Gives up what is kept for a full disk; false when that was done before, or the file's delete found no room.</summary>
    public bool ReleaseReserve() => _reserve.Release();

    /// <summary>
    /// Starts a new segment behind a record: after an open, and for a cut. Its header is synced when this returns. At an open it is
    /// called by the opening thread.
    /// </summary>
    /// <exception cref="StorageIoException">Also when the disk is full; it can be called again then.</exception>
    /// <param name="last">The record before the segment's first.</param>
    /// <param name="predecessor">The segment where that one ends; 0 when the line begins here.</param>
    /// <param name="predecessorEnd">Where in it.</param>
    public void Start(RecordRef last, ulong predecessor, long predecessorEnd)
    {
        _nextBytes = _context.Options.SegmentBytesMin;
        if (PrepareOrMakeRoom(SegmentHeader.BlockBytes, usesReserve: true) is not { } next)
            throw new StorageIoException("Start a segment", _directory, "there is no room", isDiskFull: true);
        Use(next, last, predecessor, predecessorEnd);
    }

    /// <summary>Goes on in a new segment that a record of this size, envelope included, fits in; false when there is no room for one.</summary>
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
            // Its header was not written; it stays the next one.
            _isDiskFull = true;
            return false;
        }
        return true;
    }

    /// <summary>
    /// One step towards the next segment. It changes nothing that writes into the current one need, so that they may run beside it.
    /// </summary>
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

    /// <summary>The disk was full: looks whether there is room for the next segment and the reserve.</summary>
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

    /// <summary>A write found no room.</summary>
    public void NoteFull() => _isDiskFull = true;

    /// <summary>Segments numbered below this are dead.</summary>
    public void Recycle(ulong lowest)
    {
        foreach (var number in _incarnations.Keys.Where(number => number < lowest && number != _header.Number).ToArray())
            Drop(number);
    }

    /// <summary>Segments between these, which a cut has taken out of the line, are dead.</summary>
    public void DropBehind(ulong predecessor)
    {
        foreach (var number in _incarnations.Keys.Where(number => number > predecessor && number < _header.Number).ToArray())
            Drop(number);
    }

    /// <summary>
    /// Takes over a dead segment's file: kept for a later segment, or deleted. Without room for either it stays as it is, off the line, and the next open takes it over. By the
    /// opening thread after <see cref="Start"/>.
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

    /// <summary>Makes the next segment, beside which its successor's file lies since it was prepared, the current one: its header first, then records.</summary>
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
    /// Unlike any other incarnation of this replica by the number, which a record so names even where the header is lost; the clock and the id keep copied
    /// files apart.
    /// </summary>
    private ulong NewIncarnation(ulong number)
    {
        var mixed = number + (_control.State.ReplicaId * 0x9E37_79B9_7F4A_7C15) + (ulong)_context.Time.GetUtcNow().UtcTicks;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return SegmentHeader.IncarnationOf(number, mixed ^ (mixed >> 31));
    }

    /// <summary>The next segment, on a full disk no larger than it must be; null when there is no room for that either.</summary>
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

    /// <summary>Makes a change; false when it found no room.</summary>
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
