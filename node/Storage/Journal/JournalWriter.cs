using System.Collections.Concurrent;
using System.Globalization;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Writes a shard's journal and control file, on the journal executor, in the order asked: so a write that has completed means that
/// all before it have, and the longest durable prefix ends at the last completed one. Records that wait together leave in one write.
/// The first failure ends it: nothing is written or reported afterwards, and no sync is tried again. A full disk is none: records for which
/// there is no segment wait, with the cuts behind them, until <see cref="JournalJobKind.LookForSpace"/> or a recycled segment makes room;
/// control states, which need none, pass them.
/// </summary>
/// <remarks>
/// Before a segment is used the next one's file exists (S8; <see cref="SegmentPreparation.Begin"/> creates both), so that a missing last segment
/// shows. The next segment is allocated and
/// zero-filled in small steps between the writes: a write into blocks that were never written costs half as much again.
/// </remarks>
internal sealed class JournalWriter : IWorkItem, IDisposable
{
    private const int StagingBytes = 1 << 20;
    private const int SparesMax = 2;
    private readonly StoreContext _context;
    private readonly string _directory;
    private readonly string _asideDirectory;
    private readonly ControlFile _control;
    private readonly SpaceReserve _reserve;
    private readonly IWorkItem _completions;
    private readonly ConcurrentQueue<JournalJob> _jobs = new();
    private readonly ConcurrentQueue<JournalJob> _completed = new();
    private readonly AlignedBuffer _staging = new(StagingBytes);
    private readonly List<JournalJob> _staged = [];
    private readonly SegmentReader _reader;
    private readonly SortedDictionary<ulong, ulong> _incarnations = [];
    private readonly Stack<ulong> _spares = new();
    private readonly LinkedList<JournalJob> _stalled = new();
    private int _stagedBytes;
    private IStorageFile? _current;
    private SegmentHeader _currentHeader;
    private long _offset;
    private RecordRef _last;
    private SegmentPreparation? _next;
    private ulong _nextNumber;
    private int _nextBytes;
    private int _scheduled;
    private int _reported;
    private long _bytes;
    private long _bytesLeft;
    private volatile bool _isDiskFull;
    private volatile bool _isStalled;
    private bool _toldFull;
    private volatile bool _isStopped;
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
        _directory = directory;
        _asideDirectory = asideDirectory;
        _control = control;
        _reserve = reserve;
        _completions = completions;
        _reader = new SegmentReader(context.Files, directory);
        _nextBytes = context.Options.SegmentBytesMin;
    }

    /// <summary>What ended the journal; null while it works. Any thread.</summary>
    public Exception? Failure => _failure;

    /// <summary>There was no room for the next segment: puts are to be refused. Any thread.</summary>
    public bool IsDiskFull => _isDiskFull;

    /// <summary>Records wait for room. Any thread.</summary>
    public bool IsStalled => _isStalled;

    /// <summary>How many bytes of records go in for certain while the disk is full. Any thread.</summary>
    public long BytesLeft => Interlocked.Read(ref _bytesLeft);

    /// <summary>Size of the live segments in bytes. Any thread.</summary>
    public long Bytes => Interlocked.Read(ref _bytes);

    /// <summary>Queues a job. Writer executor.</summary>
    public void Enqueue(JournalJob job)
    {
        _jobs.Enqueue(job);
        Schedule();
    }

    /// <summary>Takes the next job that is done. Writer executor; call until false.</summary>
    public bool TryTakeCompleted([System.Diagnostics.CodeAnalysis.MaybeNullWhen(false)] out JournalJob job) => _completed.TryDequeue(out job);

    /// <summary>To be called before the completed jobs are taken, so that those completed later are reported anew.</summary>
    public void AcknowledgeReport() => Interlocked.Exchange(ref _reported, 0);

    /// <summary>Takes over the segments of the line that recovery found, and the number that the next one gets. By the opening thread.</summary>
    public void Adopt(IEnumerable<(ulong Number, ulong Incarnation, long Bytes)> line, ulong nextNumber)
    {
        foreach (var (number, incarnation, bytes) in line)
        {
            _incarnations[number] = incarnation;
            Interlocked.Add(ref _bytes, bytes);
        }
        _nextNumber = nextNumber;
    }

    /// <summary>Takes over a dead segment's file: kept for a later segment, or deleted. By the opening thread after <see cref="StartSegment"/>.</summary>
    public void Retire(ulong number)
    {
        if (_spares.Count >= SparesMax)
        {
            _context.Files.Delete(SegmentName.PathOf(_directory, number));
            return;
        }
        SegmentPreparation.EraseFront(_context.Files, SegmentName.PathOf(_directory, number));
        _spares.Push(number);
    }

    /// <summary>
    /// Starts a new segment behind a record: after an open, and for a cut. Its header is synced when this returns. At an open it is
    /// called by the opening thread, later on the journal executor.
    /// </summary>
    /// <exception cref="StorageIoException">Also when the disk is full; it can be called again then.</exception>
    /// <param name="last">The record before the segment's first.</param>
    /// <param name="predecessor">The segment where that one ends; 0 when the line begins here.</param>
    /// <param name="predecessorEnd">Where in it.</param>
    public void StartSegment(RecordRef last, ulong predecessor, long predecessorEnd)
    {
        _nextBytes = _context.Options.SegmentBytesMin;
        if (PrepareOrMakeRoom(SegmentHeader.BlockBytes, usesReserve: true) is not { } next)
            throw new StorageIoException("Start a segment", _directory, "there is no room", isDiskFull: true);
        _last = last;
        Use(next, predecessor, predecessorEnd);
    }

    /// <inheritdoc/>
    public void Execute()
    {
        Interlocked.Exchange(ref _scheduled, 0);
        if (_failure is not null || _isStopped)
            return;
        try
        {
            while (_jobs.TryDequeue(out var job))
                Process(job);
            FlushStaged();
            FillNext();
            _isStalled = _stalled.Count > 0;
            Interlocked.Exchange(ref _bytesLeft, _isStalled ? 0 : CountBytesLeft());
        }
        catch (Exception exception)
        {
            // Whatever it was, what is on the disk is not known any more: kept, and told to the owner, who ends the engine.
            _failure = exception;
        }
        Report();
    }

    /// <summary>What is queued from here on is not done; what was is, before anything posted to the executor later. Writer executor.</summary>
    public void Stop() => _context.Journal.Post(new WorkAction(() => _isStopped = true));

    /// <summary>Only when the journal executor runs nothing of this shard any more.</summary>
    public void Dispose()
    {
        _current?.Dispose();
        _next?.Dispose();
        _reader.Dispose();
        _control.Dispose();
        _staging.Dispose();
    }

    private void Schedule()
    {
        if (Interlocked.Exchange(ref _scheduled, 1) == 0)
            _context.Journal.Post(this);
    }

    private void Report()
    {
        var hasFilled = _isDiskFull && !_toldFull;
        _toldFull = _isDiskFull;
        if ((!_completed.IsEmpty || _failure is not null || hasFilled) && Interlocked.Exchange(ref _reported, 1) == 0)
            _context.Writer.Post(_completions);
    }

    private void Process(JournalJob job)
    {
        if (job.Kind == JournalJobKind.Record)
        {
            if (_stalled.Count > 0 || !TryStage(job))
                _stalled.AddLast(job);
            return;
        }
        FlushStaged();
        switch (job.Kind)
        {
            case JournalJobKind.Control:
                _control.Write(job.Control!);
                break;
            case JournalJobKind.Cut:
                DropStalledBehind(job.Last.Etag);
                _stalled.AddLast(job);
                GoOn();
                return;
            case JournalJobKind.Recycle:
                Recycle(job.Number);
                GoOn();
                break;
            default:
                LookForSpace();
                break;
        }
        _completed.Enqueue(job);
    }

    /// <summary>Does what waits for room, in order, until there is none.</summary>
    private void GoOn()
    {
        while (_stalled.First is { Value: var job } && (job.Kind == JournalJobKind.Cut ? TryCut(job) : TryStage(job)))
            _stalled.RemoveFirst();
        FlushStaged();
    }

    /// <summary>Records that a cut takes away need no room any more; earlier cuts stay, since their ends are told.</summary>
    private void DropStalledBehind(UInt128 lastKept)
    {
        for (var node = _stalled.First; node is not null;)
        {
            var next = node.Next;
            if (node.Value.Entry is { } entry && node.Value.Kind == JournalJobKind.Record && entry.Record.Etag > lastKept)
            {
                _completed.Enqueue(node.Value);
                _stalled.Remove(node);
            }
            node = next;
        }
    }

    /// <summary>False: there is no room for it; nothing of it is written then.</summary>
    private bool TryStage(JournalJob job)
    {
        var entry = job.Entry!;
        var bytes = RecordEnvelope.RecordBytes(entry.Record.BodyBytes);
        if (_offset + _stagedBytes + bytes > _current!.Length)
        {
            FlushStaged();
            if (PrepareOrMakeRoom(SegmentHeader.BlockBytes + bytes, job.UsesReserve) is not { } next)
                return false;
            Use(next, _currentHeader.Number, _offset);
        }
        if (_stagedBytes + bytes > StagingBytes)
            FlushStaged();
        entry.Segment = _currentHeader.Number;
        entry.Offset = _offset + _stagedBytes;
        var envelope = new RecordEnvelope(_currentHeader.Incarnation, _last.Etag, entry.Record.BodyBytes, entry.Record.Checksum);
        envelope.WriteTo(_staging.Span[_stagedBytes..]);
        _stagedBytes += RecordEnvelope.Bytes;
        for (ReadOnlySpan<byte> rest = entry.Body; ;)
        {
            var count = Math.Min(rest.Length, StagingBytes - _stagedBytes);
            rest[..count].CopyTo(_staging.Span[_stagedBytes..]);
            _stagedBytes += count;
            rest = rest[count..];
            if (rest.IsEmpty)
                break;
            WriteStaging();
        }
        var padded = (_stagedBytes + RecordEnvelope.BlockBytes - 1) & ~(RecordEnvelope.BlockBytes - 1);
        _staging.Span[_stagedBytes..padded].Clear();
        _stagedBytes = padded;
        _staged.Add(job);
        return true;
    }

    private void WriteStaging()
    {
        _current!.Write(_staging.Span[.._stagedBytes], _offset);
        _offset += _stagedBytes;
        _stagedBytes = 0;
    }

    private void FlushStaged()
    {
        if (_staged.Count == 0)
            return;
        WriteStaging();
        _last = _staged[^1].Entry!.Record;
        foreach (var job in _staged)
            _completed.Enqueue(job);
        _staged.Clear();
    }

    /// <summary>Makes the next segment, beside which its successor's file lies since it was prepared, the current one: its header first, then records.</summary>
    private void Use(SegmentPreparation next, ulong predecessor, long predecessorEnd)
    {
        var header = new SegmentHeader(
            next.Number,
            NewIncarnation(next.Number),
            _control.State.ReplicaId,
            _control.State.Shard,
            predecessor,
            predecessor == 0 ? 0 : _incarnations[predecessor],
            predecessorEnd,
            _last.Etag,
            _last.Checksum);
        header.WriteTo(_staging.Span);
        next.File.Write(_staging.Span[..SegmentHeader.BlockBytes], 0);
        _current?.Dispose();
        _current = next.Release();
        _next = null;
        _currentHeader = header;
        _offset = SegmentHeader.BlockBytes;
        _incarnations[header.Number] = header.Incarnation;
        Interlocked.Add(ref _bytes, _current.Length);
        _nextNumber = header.Number + 1;
        _nextBytes = (int)Math.Min(2 * Math.Max(_current.Length, _context.Options.SegmentBytesMin), _context.Options.SegmentBytesMax);
    }

    /// <summary>Unlike any other incarnation of this replica by the number alone; the clock and the id keep copied files apart.</summary>
    private ulong NewIncarnation(ulong number)
    {
        var mixed = number + (_control.State.ReplicaId * 0x9E37_79B9_7F4A_7C15) + (ulong)_context.Time.GetUtcNow().UtcTicks;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return mixed ^ (mixed >> 31);
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
        _next ??= SegmentPreparation.Begin(_context.Files, _directory, _nextNumber, RoundUp(bytes), _spares);
        _next.GrowTo(RoundUp(bytesMin));
        return _next;
    }

    /// <summary>
    /// One step towards the next segment, between other work, once half of the current one is used: an idle shard holds one segment.
    /// </summary>
    private void FillNext()
    {
        if (_isDiskFull || _offset < _current!.Length / 2)
            return;
        try
        {
            var next = Prepare(_nextBytes, SegmentHeader.BlockBytes);
            if (next.FillStep(_staging))
                Schedule();
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
        }
    }

    private long CountBytesLeft()
    {
        var next = _next is not null ? _next.File.Length : _reserve.IsHeld ? _reserve.Bytes : 0;
        return Math.Max(_current!.Length - _offset, next - SegmentHeader.BlockBytes);
    }

    private void LookForSpace()
    {
        GoOn();
        if (_stalled.Count > 0)
            return;
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

    /// <summary>False: there is no room for it yet, and the line goes on as it was.</summary>
    private bool TryCut(JournalJob job)
    {
        var predecessor = job.Entry?.Segment ?? 0;
        FlushStaged();
        try
        {
            KeepAside(job);
            StartSegment(job.Last, predecessor, job.Entry?.End ?? 0);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            _isDiskFull = true;
            return false;
        }
        // Behind the synced header, the segments between the cut's point and the new one are dead.
        foreach (var number in _incarnations.Keys.Where(number => number > predecessor && number < _currentHeader.Number).ToArray())
            Drop(number);
        _completed.Enqueue(job);
        return true;
    }

    /// <summary>The cut records stay for people to look at: their bodies, one after the other, in a file named by the first's etag.</summary>
    private void KeepAside(JournalJob job)
    {
        if (job.Tail.Count == 0)
            return;
        var files = _context.Files;
        files.CreateDirectory(_asideDirectory);
        var names = files.List(_asideDirectory);
        for (var index = 0; index <= names.Count - _context.Options.AsideFilesMax; index++)
            files.Delete(Path.Combine(_asideDirectory, names[index]));
        var name = string.Create(CultureInfo.InvariantCulture, $"{_nextNumber:x16}-{job.Tail[0].Record.Etag:x32}.bodies");
        var path = Path.Combine(_asideDirectory, name);
        // Of an attempt that found no room.
        files.Delete(path);
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));
        var offset = 0L;
        try
        {
            foreach (var entry in job.Tail)
            {
                file.Write(entry.Body ?? _reader.ReadBody(entry), offset);
                offset += entry.Record.BodyBytes;
            }
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            files.Delete(path);
            throw;
        }
        _reader.Close();
    }

    private void Recycle(ulong lowest)
    {
        foreach (var number in _incarnations.Keys.Where(number => number < lowest && number != _currentHeader.Number).ToArray())
            Drop(number);
    }

    private void Drop(ulong number)
    {
        using (var file = _context.Files.Open(SegmentName.PathOf(_directory, number), new StorageFileOptions(StorageFileMode.OpenExisting)))
            Interlocked.Add(ref _bytes, -file.Length);
        _incarnations.Remove(number);
        Retire(number);
    }

    private static int RoundUp(int bytes) => (bytes + RecordEnvelope.BlockBytes - 1) & ~(RecordEnvelope.BlockBytes - 1);
}
