using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What a scan of the journal directory found: the line of segments from the newest intact header back, its records, and how it ends (<see cref="Tail"/>).
/// Read-only. Opening thread. Faults are recorded here and judged by <c>RecoveryDecisions</c>.
/// </summary>
internal sealed class JournalScan
{
    private readonly IFileSystem _files;
    private readonly string _directory;

    private readonly ReplicaId _replicaId;
    private readonly List<ulong> _headersUnreadable = [];

    private JournalScan(IFileSystem files, string directory, ReplicaId replicaId)
    {
        _files = files;
        _directory = directory;
        _replicaId = replicaId;
    }

    /// <summary>
    /// The segments of the line, oldest first, up to the one in which it ends. Empty when no header is intact, or when nothing after the checkpoint can be
    /// read.
    /// </summary>
    public List<LineSegment> Segments { get; } = [];

    /// <summary>All files named as segments, in order.</summary>
    public List<ulong> Files { get; } = [];

    /// <summary>The records of the line, oldest first, without their bodies. The bodies of records after the checkpoint were read and are intact.</summary>
    public List<JournalEntry> Entries { get; } = [];

    /// <summary>The record before the first entry.</summary>
    public RecordRef Base { get; private set; }

    /// <summary>The newest record.</summary>
    public RecordRef Last => Entries.Count == 0 ? Base : Entries[^1].Record;

    /// <summary>
    /// The newest record that is certainly on disk: the checkpoint covers it, or something written after it states that it was durable by then. Records
    /// after it could be read, but perhaps only from the page cache.
    /// </summary>
    public Etag Proven { get; private set; }

    /// <summary>The newest segment with an intact header, whether or not it is part of the line; 0 when there is none.</summary>
    public ulong Newest { get; private set; }

    /// <summary>Where the line ends in its last segment.</summary>
    public long TailEnd { get; private set; }

    /// <summary>How it ends there.</summary>
    public JournalTailState Tail { get; private set; }

    /// <summary>
    /// The place where a segment before the last ends before its successor says it does, after what the checkpoint covers; null if there is none.
    /// </summary>
    public JournalPlace? Break { get; private set; }

    /// <summary>The place of such a break, or of a damaged record, within what the checkpoint covers. The line begins after it.</summary>
    public JournalPlace? CoveredBreak { get; private set; }

    /// <summary>
    /// The place where the line begins after the checkpoint or ends before it. The line is then empty and begins at the checkpoint. Null if there is no
    /// such gap.
    /// </summary>
    public JournalPlace? Gap { get; private set; }

    /// <summary>Whether the file after the last segment exists, as it must before a segment is used.</summary>
    public bool HasNextFile { get; private set; }

    /// <summary>
    /// A file after the newest intact header that nevertheless contains an intact record. Its header is lost, and so is the course of the line from there
    /// on. It may have followed a truncation, so what is at the end of the line now may have been truncated. Null if there is none.
    /// </summary>
    public ulong? LostItsHeader { get; private set; }

    /// <summary>The place of something unreadable that may belong to the line; null if there is none.</summary>
    public JournalPlace? Unreadable { get; private set; }

    /// <summary>Reads the directory. Records up to <paramref name="covered"/> are in the checkpoint. Segments of another replica are ignored.</summary>
    public static JournalScan Read(IFileSystem files, string directory, in CheckpointPosition covered, ReplicaId replicaId)
    {
        var scan = new JournalScan(files, directory, replicaId) { Base = covered.Last, Proven = covered.Etag };
        if (!files.DirectoryExists(directory))
            return scan;
        foreach (var name in files.List(directory))
        {
            if (SegmentName.TryParse(name, out var number))
                scan.Files.Add(number);
        }
        scan.FindSegments();
        if (scan.Segments.Count == 0)
            return scan;
        scan.Newest = scan.Segments[^1].Header.Number;
        scan.ReadRecords(covered);
        scan.LookBehind();
        scan.BeginAtCheckpoint(covered);
        return scan;
    }

    /// <summary>A place in the journal.</summary>
    public JournalPlace Place(ulong number, long offset) => new(SegmentName.PathOf(_directory, number), offset);

    private void FindSegments()
    {
        for (var index = Files.Count - 1; index >= 0 && Segments.Count == 0; index--)
        {
            if (TryReadHeader(Files[index], out var newest))
                Segments.Add(newest);
        }
        while (Segments.Count > 0)
        {
            var next = Segments[^1].Header;
            if (next.PredecessorNumber == 0 || !TryReadHeader(next.PredecessorNumber, out var segment)
                || segment.Header.Incarnation != next.PredecessorIncarnation)
                break;
            Segments.Add(segment);
        }
        Segments.Reverse();
    }

    private bool TryReadHeader(ulong number, out LineSegment segment)
    {
        segment = default;
        var path = SegmentName.PathOf(_directory, number);
        if (!_files.FileExists(path))
            return false;
        using var file = Open(path);
        var block = new byte[SegmentHeader.BlockBytes];
        try
        {
            if (file.Read(block, 0) < block.Length)
                return false;
        }
        catch (StorageIoException)
        {
            _headersUnreadable.Add(number);
            return false;
        }
        if (!SegmentHeader.TryRead(block, path, out var header)
            || header.Number != number || header.ReplicaId != _replicaId)
            return false;
        segment = new LineSegment(header, file.Length);
        return true;
    }

    private IStorageFile Open(string path) => _files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));

    private void ReadRecords(in CheckpointPosition covered)
    {
        Base = RecordBefore(Segments[0].Header);
        for (var index = 0; index < Segments.Count; index++)
        {
            var header = Segments[index].Header;
            using var scanner = new SegmentScanner(Open(SegmentName.PathOf(_directory, header.Number)), header.Incarnation);
            if (index == Segments.Count - 1)
                ReadTail(scanner, header, covered);
            else if (!TryReadWhole(scanner, header, Segments[index + 1].Header, covered))
                Segments.RemoveRange(index + 1, Segments.Count - index - 1);
            TailEnd = scanner.Offset;
            // A segment begins only when all earlier writes have completed.
            Proven = Etag.Max(Proven, Etag.Max(header.LastEtag, scanner.Proven));
        }
    }

    /// <summary>False if the line ends here, although later segments show that it once continued.</summary>
    private bool TryReadWhole(SegmentScanner scanner, in SegmentHeader header, in SegmentHeader next, in CheckpointPosition covered)
    {
        ReadUpTo(scanner, header, next.PredecessorEnd, covered);
        if (scanner.Offset == next.PredecessorEnd && Last.Etag == next.LastEtag && Last.Checksum == next.LastChecksum)
            return true;
        var place = Place(header.Number, scanner.Offset);
        if (next.LastEtag > covered.Etag)
        {
            Break = place;
            return false;
        }
        CoveredBreak = place;
        BeginAt(RecordBefore(next));
        return true;
    }

    private void ReadTail(SegmentScanner scanner, in SegmentHeader header, in CheckpointPosition covered)
    {
        ReadUpTo(scanner, header, long.MaxValue, covered);
        if (scanner.HasProofOfLoss(Last.Etag, out _))
            Tail = JournalTailState.Lost;
        else if (scanner.HasUnreadableFrom(scanner.Offset))
            Tail = JournalTailState.Unreadable;
        else if (scanner.HasEnvelopeAtEnd())
            Tail = JournalTailState.Torn;
    }

    /// <summary>
    /// Reads records up to an end. A damaged record that the checkpoint covers is skipped, and the line then begins at the checkpoint's position.
    /// </summary>
    private void ReadUpTo(SegmentScanner scanner, in SegmentHeader header, long end, in CheckpointPosition covered)
    {
        ReadSound(scanner, header, end, covered.Etag);
        if (header.Number != covered.Position.Segment || scanner.Offset >= covered.Position.Offset || Last.Etag >= covered.Etag)
            return;
        CoveredBreak = Place(header.Number, scanner.Offset);
        BeginAt(covered.Last);
        scanner.MoveTo(covered.Position.Offset);
        ReadSound(scanner, header, end, covered.Etag);
    }

    private void ReadSound(SegmentScanner scanner, in SegmentHeader header, long end, Etag covered)
    {
        while (scanner.Offset < end && scanner.TryReadNext(Last, covered, out var record))
            Add(header, scanner.Offset, record);
    }

    private void BeginAt(in RecordRef record)
    {
        Entries.Clear();
        Base = record;
    }

    /// <summary>
    /// Empties the line if it does not reach the checkpoint. Records after a gap do not follow the checkpoint and cannot be used, and a line that ends
    /// before the checkpoint is covered by it.
    /// </summary>
    private void BeginAtCheckpoint(in CheckpointPosition covered)
    {
        if (Base.Etag > covered.Etag)
            Gap = Place(Segments[0].Header.Number, 0);
        else if (Last.Etag < covered.Etag)
            Gap = Place(Segments[^1].Header.Number, TailEnd);
        if (Gap is null)
            return;
        BeginAt(covered.Last);
        Segments.Clear();
    }

    private void Add(in SegmentHeader header, long end, RecordRef record) =>
        Entries.Add(new JournalEntry(record, body: default)
        {
            Segment = header.Number,
            Offset = end - RecordEnvelope.RecordBytes(record.BodyBytes),
            IsDurable = true,
        });

    private void LookBehind()
    {
        HasNextFile = Files.Contains(Newest + 1);
        if (Tail == JournalTailState.Unreadable)
            Unreadable = Place(Segments[^1].Header.Number, TailEnd);
        foreach (var number in Files.Where(number => number > Newest))
        {
            using var scanner = new SegmentScanner(Open(SegmentName.PathOf(_directory, number)), incarnation: 0);
            if (scanner.HasRecordOf(number))
                LostItsHeader ??= number;
            else if (_headersUnreadable.Contains(number) || scanner.HasUnreadableFrom(0))
                Unreadable ??= Place(number, 0);
        }
    }

    private static RecordRef RecordBefore(in SegmentHeader header) =>
        new(header.LastEtag, default, header.LastChecksum, 0, 0, RecordFlags.None);
}

/// <summary>A place in the journal, as error messages name it.</summary>
/// <param name="Path">The segment's file.</param>
/// <param name="Offset">Bytes from its start.</param>
internal sealed record JournalPlace(string Path, long Offset)
{
    /// <inheritdoc/>
    public override string ToString() => $"'{Path}' at offset {Offset}";
}

/// <summary>A segment of the line.</summary>
/// <param name="Header">Its header.</param>
/// <param name="Bytes">Length of its file.</param>
internal readonly record struct LineSegment(SegmentHeader Header, long Bytes);
