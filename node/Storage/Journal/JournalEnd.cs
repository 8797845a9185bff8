namespace KvCluster.Storage.Journal;

/// <summary>
/// The end of a journal: the current segment, how much of it is taken, the last record, and the end of the durable prefix. While lanes write records, the
/// lock of <see cref="JournalSchedule"/> protects it; during an exclusive step it belongs to that step's lane.
/// </summary>
/// <remarks>
/// Space is taken when a write begins, before it reaches the disk. A write that found the disk full returns it, together with all later ones.
/// </remarks>
internal sealed class JournalEnd : IDisposable
{
    private SegmentFile? _file;
    private SegmentHeader _header;

    /// <summary>Bytes of records in the current segment that a shared journal has made durable.</summary>
    private long _sharedBytes;

    /// <summary>The current segment's number.</summary>
    public ulong Segment => _header.Number;

    /// <summary>Where the next record goes in the current segment: a multiple of 4,096. What is before it is written or in flight.</summary>
    public long Offset { get; private set; }

    /// <summary>The record before the next one.</summary>
    public RecordRef Last { get; private set; }

    /// <summary>The newest record that is durable together with all records before it. Envelopes name it (S4).</summary>
    public Etag Durable { get; private set; }

    /// <summary>
    /// Whether the next segment's header may be on the disk, although nobody knows. It states where the current segment ends, and a recovery takes what follows
    /// that end for dead. So nothing is appended any more until that header was written again.
    /// </summary>
    public bool IsSealed { get; private set; }

    /// <summary>Bytes of records that still fit into the current segment.</summary>
    public long BytesLeft => IsSealed ? 0 : _file!.Length - Offset;

    /// <summary>Whether half of the current segment is taken.</summary>
    public bool IsHalfUsed => Offset >= _file!.Length / 2;

    /// <summary>
    /// Whether most of what is durable in the current segment was written through the page cache, after a block of a shared journal. Also called by a lane that
    /// prepares the next segment, which may see it a moment late.
    /// </summary>
    public bool IsMostlyShared => 2 * Volatile.Read(ref _sharedBytes) > Math.Max(0, Offset - SegmentHeader.BlockBytes);

    /// <summary>Whether the current segment has more bytes than this.</summary>
    public bool IsLongerThan(int bytes) => _file?.Length > bytes;

    /// <summary>
    /// Whether several writes into the current segment may be in flight. Not through the page cache: the kernel reports a write error once, so of two
    /// concurrent syncs of a file the wrong one may get it.
    /// </summary>
    public bool TakesWritesAtOnce => _file!.IsDirect;

    /// <summary>Whether a record fits into the current segment.</summary>
    public bool HasRoomFor(JournalEntry record) => record.Bytes <= BytesLeft;

    /// <summary>Begins a write of records, which are then added with <see cref="Add"/>.</summary>
    public DurableWrite BeginWrite()
    {
        Invariant.Check(!IsSealed, $"A write began at offset {Offset} of segment {Segment}, although the header of its successor may be on the disk.");
        return new DurableWrite(_file!, _header, Durable, Offset, Last);
    }

    /// <summary>Adds a record to the write that began last, and takes its space.</summary>
    public void Add(DurableWrite write, JournalJob job)
    {
        var record = job.Entry!;
        Invariant.Check(HasRoomFor(record) && write.End == Offset, $"A record of {record.Bytes} bytes was added at offset {write.End} of segment {Segment}, "
            + $"which is taken up to {Offset}.");
        write.Add(job);
        Offset = write.End;
        Last = record.Record;
    }

    /// <summary>Notes that a write is durable, with all before it.</summary>
    public void Complete(DurableWrite write)
    {
        Durable = write.Jobs[^1].Entry!.Record.Etag;
        if (write.IsShared)
            Volatile.Write(ref _sharedBytes, _sharedBytes + write.Bytes);
    }

    /// <summary>Returns the space of a write that found the disk full, and of all later ones.</summary>
    public void TakeBack(DurableWrite write)
    {
        Invariant.Check(write.Offset <= Offset, $"A write at offset {write.Offset} of segment {Segment} was taken back, which is taken only up to {Offset}.");
        (Offset, Last) = (write.Offset, write.Previous);
    }

    /// <summary>Gives back what is longer than the next records need: those up to this many bytes. Returns the segment's length.</summary>
    public long CutUnused(int bytesKept)
    {
        _file!.CutTo((int)Offset + RecordEnvelope.RoundUp(bytesKept));
        return _file.Length;
    }

    /// <summary>Called before the header of the next segment is written. Only <see cref="Continue"/> ends it.</summary>
    public void Seal() => IsSealed = true;

    /// <summary>Continues after a durable record in a new segment, whose header is durable. Owns the file from here on.</summary>
    public void Continue(SegmentFile file, in SegmentHeader header, in RecordRef last)
    {
        _file?.Dispose();
        (_file, _header, Offset) = (file, header, SegmentHeader.BlockBytes);
        (Last, Durable, IsSealed) = (last, last.Etag, false);
        Volatile.Write(ref _sharedBytes, 0);
    }

    /// <inheritdoc/>
    public void Dispose() => _file?.Dispose();
}
