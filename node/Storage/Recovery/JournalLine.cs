using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What the journal's directory holds: the line of segments from the newest sound header back, and its records. Only reads. Opening
/// thread. What is wrong is noted for <c>RecoveryTable</c>, not judged here.
/// </summary>
internal sealed class JournalLine
{
    private readonly IFileSystem _files;
    private readonly string _directory;

    private readonly ulong _replicaId;
    private readonly List<ulong> _headersUnreadable = [];

    private JournalLine(IFileSystem files, string directory, ulong replicaId)
    {
        _files = files;
        _directory = directory;
        _replicaId = replicaId;
    }

    /// <summary>
    /// The segments of the line, oldest first, up to the one that it ends in; empty when no header is sound, or when nothing behind the
    /// checkpoint can be read.
    /// </summary>
    public List<LineSegment> Segments { get; } = [];

    /// <summary>All files that are named as segments, in order.</summary>
    public List<ulong> Files { get; } = [];

    /// <summary>The records of the line, oldest first. Without their bodies, which were read and are whole behind what the checkpoint covers.</summary>
    public List<JournalEntry> Entries { get; } = [];

    /// <summary>The record before the first entry.</summary>
    public RecordRef Base { get; private set; }

    /// <summary>The newest record.</summary>
    public RecordRef Last => Entries.Count == 0 ? Base : Entries[^1].Record;

    /// <summary>
    /// The newest record of which it is certain that the disk has it: the checkpoint covers it, or something that was written behind it says that it was durable then. What
    /// comes after it was read, perhaps from the system's cache alone.
    /// </summary>
    public UInt128 Proven { get; private set; }

    /// <summary>The newest segment with a sound header, whether the line reaches it or not; 0 when there is none.</summary>
    public ulong Newest { get; private set; }

    /// <summary>Where the line ends in its last segment.</summary>
    public long TailEnd { get; private set; }

    /// <summary>How it ends there.</summary>
    public TailFault Tail { get; private set; }

    /// <summary>A segment before the last does not reach the end that its successor states, behind what the checkpoint covers: where.</summary>
    public string? Break { get; private set; }

    /// <summary>The same, or a bad record, within what the checkpoint covers: the line begins behind it.</summary>
    public string? CoveredBreak { get; private set; }

    /// <summary>The line begins behind the checkpoint, or ends before it: where. It is empty then, and begins at the checkpoint.</summary>
    public string? Gap { get; private set; }

    /// <summary>The file after the last segment's is there, as it must be before a segment is used.</summary>
    public bool HasNextFile { get; private set; }

    /// <summary>
    /// A file behind the newest sound header that holds a sound record all the same: its header is lost, and with it what the line was from there on. That
    /// may be behind a cut, so that what the line ends with now was cut off. Null: there is none.
    /// </summary>
    public ulong? LostItsHeader { get; private set; }

    /// <summary>Where something that may belong to the line cannot be read; null: nowhere.</summary>
    public string? Unreadable { get; private set; }

    /// <summary>
    /// Reads the directory; records up to <paramref name="covered"/> are in the tree's checkpoint. Segments of another replica do not count.
    /// </summary>
    public static JournalLine Read(IFileSystem files, string directory, in CheckpointPosition covered, ulong replicaId)
    {
        var line = new JournalLine(files, directory, replicaId) { Base = RecordAt(covered), Proven = covered.Etag };
        if (!files.DirectoryExists(directory))
            return line;
        foreach (var name in files.List(directory))
        {
            if (SegmentName.TryParse(name, out var number))
                line.Files.Add(number);
        }
        line.FindSegments();
        if (line.Segments.Count == 0)
            return line;
        line.Newest = line.Segments[^1].Header.Number;
        line.ReadRecords(covered);
        line.LookBehind();
        line.BeginAtCheckpoint(covered);
        return line;
    }

    /// <summary>Describes a place in the journal for an error.</summary>
    public string Place(ulong number, long offset) => $"'{SegmentName.PathOf(_directory, number)}' at offset {offset}";

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
            // A segment begins when nothing before it is on its way any more.
            Proven = UInt128.Max(Proven, UInt128.Max(header.LastEtag, scanner.Proven));
        }
    }

    /// <summary>False: the line ends here, although later segments show that it once went on.</summary>
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
            Tail = TailFault.Lost;
        else if (scanner.HasUnreadableFrom(scanner.Offset))
            Tail = TailFault.Unreadable;
        else if (scanner.HasEnvelopeAtEnd())
            Tail = TailFault.Torn;
    }

    /// <summary>A bad record that the checkpoint covers is passed over: the line then begins where the checkpoint says.</summary>
    private void ReadUpTo(SegmentScanner scanner, in SegmentHeader header, long end, in CheckpointPosition covered)
    {
        ReadSound(scanner, header, end, covered.Etag);
        if (header.Number != covered.Position.Segment || scanner.Offset >= covered.Position.Offset || Last.Etag >= covered.Etag)
            return;
        CoveredBreak = Place(header.Number, scanner.Offset);
        BeginAt(RecordAt(covered));
        scanner.MoveTo(covered.Position.Offset);
        ReadSound(scanner, header, end, covered.Etag);
    }

    private void ReadSound(SegmentScanner scanner, in SegmentHeader header, long end, UInt128 covered)
    {
        while (scanner.Offset < end && scanner.TryReadNext(Last, covered, out var record))
            Add(header, scanner.Offset, record);
    }

    private void BeginAt(in RecordRef record)
    {
        Entries.Clear();
        Base = record;
    }

    /// <summary>What lies behind a gap does not follow the checkpoint, and is of no use; what ends before it, is in it.</summary>
    private void BeginAtCheckpoint(in CheckpointPosition covered)
    {
        if (Base.Etag > covered.Etag)
            Gap = Place(Segments[0].Header.Number, 0);
        else if (Last.Etag < covered.Etag)
            Gap = Place(Segments[^1].Header.Number, TailEnd);
        if (Gap is null)
            return;
        BeginAt(RecordAt(covered));
        Segments.Clear();
    }

    private void Add(in SegmentHeader header, long end, RecordRef record) =>
        Entries.Add(new JournalEntry(record, body: null)
        {
            Segment = header.Number,
            Offset = end - RecordEnvelope.RecordBytes(record.BodyBytes),
            IsDurable = true,
        });

    private void LookBehind()
    {
        HasNextFile = Files.Contains(Newest + 1);
        if (Tail == TailFault.Unreadable)
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

    private static RecordRef RecordAt(in CheckpointPosition covered) => new(covered.Etag, default, covered.ChainChecksum, 0, 0, RecordFlags.None);

    private static RecordRef RecordBefore(in SegmentHeader header) =>
        new(header.LastEtag, default, header.LastChecksum, 0, 0, RecordFlags.None);
}

/// <summary>A segment of the line.</summary>
/// <param name="Header">Its header.</param>
/// <param name="Bytes">Its file's length.</param>
internal readonly record struct LineSegment(SegmentHeader Header, long Bytes);

/// <summary>How the last segment of the line ends.</summary>
internal enum TailFault
{
    /// <summary>No record of this life was being written right behind the last; of two writes in flight the later may be there.</summary>
    None,

    /// <summary>A record behind the end is torn, or sound but unchained; nothing shows that what is missing was durable.</summary>
    Torn,

    /// <summary>A later record shows that what is missing was durable.</summary>
    Lost,

    /// <summary>Behind the end is something that the disk cannot read: a torn write leaves no such thing, so a record may be there that was whole.</summary>
    Unreadable,
}
