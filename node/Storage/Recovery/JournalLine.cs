using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// What the journal's directory holds: the line of segments from the newest sound header back, and its records. Only reads. Opening
/// thread. What is wrong is noted for <c>RecoveryTable</c>, not judged here.
/// </summary>
internal sealed class JournalLine
{
    private readonly IFileSystem _files;
    private readonly string _directory;

    private JournalLine(IFileSystem files, string directory)
    {
        _files = files;
        _directory = directory;
    }

    /// <summary>The segments of the line, oldest first; empty when no header is sound.</summary>
    public List<LineSegment> Segments { get; } = [];

    /// <summary>All files that are named as segments, in order.</summary>
    public List<ulong> Files { get; } = [];

    /// <summary>The records of the line, oldest first. Without their bodies.</summary>
    public List<JournalEntry> Entries { get; } = [];

    /// <summary>The record before the first entry.</summary>
    public RecordRef Base { get; private set; }

    /// <summary>The newest record.</summary>
    public RecordRef Last => Entries.Count == 0 ? Base : Entries[^1].Record;

    /// <summary>Where the last segment ends.</summary>
    public long TailEnd { get; private set; }

    /// <summary>How it ends there.</summary>
    public TailFault Tail { get; private set; }

    /// <summary>A segment before the last does not reach the end that its successor states, behind what the checkpoint covers: where.</summary>
    public string? Break { get; private set; }

    /// <summary>The same within what the checkpoint covers: the line begins behind it.</summary>
    public string? CoveredBreak { get; private set; }

    /// <summary>The file after the last segment's is there, as it must be before a segment is used.</summary>
    public bool HasNextFile { get; private set; }

    /// <summary>That file has a destroyed header before a record that continues the line.</summary>
    public bool NextLostItsHeader { get; private set; }

    /// <summary>Reads the directory; records up to <paramref name="covered"/> are in the tree's checkpoint.</summary>
    public static JournalLine Read(IFileSystem files, string directory, UInt128 covered)
    {
        var line = new JournalLine(files, directory);
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
        line.ReadRecords(covered);
        line.LookAtNextFile();
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
        if (file.Read(block, 0) < block.Length || !SegmentHeader.TryRead(block, path, out var header) || header.Number != number)
            return false;
        segment = new LineSegment(header, file.Length);
        return true;
    }

    private IStorageFile Open(string path) => _files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));

    private void ReadRecords(UInt128 covered)
    {
        Base = RecordBefore(Segments[0].Header);
        for (var index = 0; index < Segments.Count && Break is null; index++)
        {
            var header = Segments[index].Header;
            using var scanner = new SegmentScanner(Open(SegmentName.PathOf(_directory, header.Number)), header.Incarnation);
            if (index == Segments.Count - 1)
                ReadTail(scanner, header);
            else
                ReadWhole(scanner, header, Segments[index + 1].Header, covered);
        }
    }

    private void ReadWhole(SegmentScanner scanner, SegmentHeader header, SegmentHeader next, UInt128 covered)
    {
        while (scanner.Offset < next.PredecessorEnd && scanner.TryReadNext(Last, out var record))
            Add(header, scanner.Offset, record);
        if (scanner.Offset == next.PredecessorEnd && Last.Etag == next.LastEtag && Last.Checksum == next.LastChecksum)
            return;
        var place = Place(header.Number, scanner.Offset);
        if (next.LastEtag > covered)
        {
            Break = place;
            return;
        }
        CoveredBreak = place;
        Entries.Clear();
        Base = RecordBefore(next);
    }

    private void ReadTail(SegmentScanner scanner, SegmentHeader header)
    {
        while (scanner.TryReadNext(Last, out var record))
            Add(header, scanner.Offset, record);
        TailEnd = scanner.Offset;
        if (scanner.HasProofOfLoss(Last.Etag, out _))
            Tail = TailFault.Lost;
        else if (scanner.HasEnvelopeAtEnd())
            Tail = TailFault.Torn;
    }

    private void Add(in SegmentHeader header, long end, RecordRef record) =>
        Entries.Add(new JournalEntry(record, body: null)
        {
            Segment = header.Number,
            Offset = end - RecordEnvelope.RecordBytes(record.BodyBytes),
            IsDurable = true,
        });

    private void LookAtNextFile()
    {
        var number = Segments[^1].Header.Number + 1;
        HasNextFile = Files.Contains(number);
        if (!HasNextFile)
            return;
        using var scanner = new SegmentScanner(Open(SegmentName.PathOf(_directory, number)), incarnation: 0);
        NextLostItsHeader = scanner.BeginsBehind(Last);
    }

    private static RecordRef RecordBefore(in SegmentHeader header) =>
        new(header.LastEtag, default, header.LastChecksum, 0, 0, RecordFlags.None);
}
