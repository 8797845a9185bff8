using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Reads everything in a replica's directory that is not in use, and says what is damaged and what is lost as a result. Changes nothing. One thread. Memory: a
/// bit per page of the data file, and an entry per record of the journal.
/// </summary>
internal sealed class StoreCheck
{
    private readonly StoppedReplica _replica;
    private readonly List<Finding> _findings = [];
    private long _recordsRead;

    private StoreCheck(StoppedReplica replica) => _replica = replica;

    /// <summary>Checks a directory.</summary>
    /// <exception cref="NotAReplicaException">The directory is not that of a replica.</exception>
    /// <exception cref="FormatVersionException">The replica has another format version.</exception>
    /// <exception cref="StorageIoException">Something in it cannot be opened at all.</exception>
    public static CheckReport Run(IFileSystem disk, string directory)
    {
        using var replica = StoppedReplica.Open(disk, directory);
        return Run(replica);
    }

    /// <summary>Checks a directory that was opened.</summary>
    public static CheckReport Run(StoppedReplica replica)
    {
        var check = new StoreCheck(replica);
        check.CheckDirectory();
        check.CheckControl();
        PageUse? use = null;
        if (replica.State is not null)
        {
            check.CheckMetas();
            use = check.CheckPages();
            check.CheckJournal();
        }
        var (id, shard) = replica.Identity;
        return new CheckReport(
            replica.Layout.Directory, id, shard, replica.Row,
            check._findings, use?.Keys ?? [], use?.DamagedTrees ?? [], use?.PagesRead ?? 0, check._recordsRead);
    }

    private void CheckDirectory()
    {
        var layout = _replica.Layout;
        if (_replica.Quarantined is { } reason)
            Damage(layout.Quarantined, null, $"the replica was quarantined: {reason}", "nothing by the mark itself; the engine does not open the directory");
        if (_replica.State is null)
            Damage(layout.Directory, null, "there is no state directory", "all keys and records");
        if (_replica.Files.FileExists(layout.Running))
            Notice(layout.Running, null, "the last process that used the directory did not close it");
        foreach (var left in (string[])[.. _replica.StatesLeft, layout.Incoming])
        {
            if (_replica.Files.DirectoryExists(left))
                Notice(left, null, "it was left by a snapshot; the next open deletes it");
        }
    }

    private void CheckControl()
    {
        var path = _replica.Layout.Control;
        if (!_replica.HasControlFile)
            Damage(path, null, "the control file is missing", "the replica's promises: its votes, and what it acknowledged");
        else if (_replica.Control is null)
            Damage(path, 0, "neither slot is intact", "the replica's promises: its votes, and what it acknowledged");
        else
        {
            for (var slot = 0; slot < _replica.Slots.Length; slot++)
            {
                if (_replica.Slots[slot].State is null)
                    Notice(path, slot * ControlFile.SlotBytes, $"slot {slot} is damaged, or was being written when the power failed; the other one is used");
            }
        }
    }

    private void CheckMetas()
    {
        var path = StoreLayout.Data(_replica.State!);
        for (var number = 0; number < 2 && _replica.Space is not null; number++)
        {
            if (_replica.Metas[number] is null && _replica.Newest is not null)
                Notice(path, number * Page.Bytes, $"meta page {number} is damaged, or was being written when the power failed; the other one is used");
        }
        if (_replica is { Newest: { } newest, Older: { } older } && older.Revision + 1 != newest.Revision)
            Damage(path, older.PageNumber * Page.Bytes, $"meta page {older.PageNumber} has revision {older.Revision}, although the other one has revision "
                + $"{newest.Revision}: the disk has lost a write of it", "nothing; the other one is used");
        if (_replica.DataFault is { } fault)
            _findings.Add(Finding.Of(fault, path, null, _replica.Newest is null ? "all keys that only the checkpoint has"
                : "nothing by this itself; the engine does not open the file"));
    }

    private PageUse? CheckPages()
    {
        if (_replica is not { Space: { } space, Newest: { } newest })
            return null;
        var use = new PageUse(space, StoreLayout.Data(_replica.State!));
        use.ReadTrees(newest.Trees);
        if (_replica.Free is { } free)
            use.Compare(free, newest);
        _findings.AddRange(use.Findings);
        return use;
    }

    private void CheckJournal()
    {
        var scan = _replica.Journal!;
        CheckEndOf(scan);
        CheckHeaders(scan);
        using var reader = new SegmentReader(_replica.Files, StoreLayout.Journal(_replica.State!));
        foreach (var entry in scan.Entries)
        {
            _recordsRead++;
            try
            {
                _ = reader.ReadBody(entry);
            }
            catch (CorruptStoreException)
            {
                Damage(scan.Place(entry.Segment, entry.Offset), $"the record {EtagText.Of(entry.Record.Etag)} is damaged", "nothing here, because the "
                    + "checkpoint covers it; followers that need it get a snapshot");
            }
        }
    }

    private void CheckEndOf(JournalScan scan)
    {
        var (last, covered) = (EtagText.Of(scan.Last.Etag), EtagText.Of(_replica.Facts.Meta));
        if (scan.Newest == 0)
            Damage(StoreLayout.Journal(_replica.State!), null, "no segment has an intact header", $"the records after {covered}, if there were any");
        if (scan.Segments.Count > 0 && _replica.Newest is not null && !_replica.Facts.MetaIsOnLine)
            Damage(scan.Place(scan.Segments[0].Header.Number, 0), $"the journal does not contain the last record of the checkpoint, {covered}", "the records "
                + "of the journal, which do not follow the checkpoint");
        if (scan.Newest > 0 && !scan.HasNextFile)
            Damage(scan.Place(scan.Newest + 1, 0), "the segment is missing, although each one is created before its predecessor is used", "the records after "
                + $"{last}, if there were any");
        if (scan.LostItsHeader is { } lost)
            Damage(scan.Place(lost, 0), "the header of the segment is damaged, and it contains an intact record", $"records after {last}");
        if (scan.Gap is { } gap)
            Damage(gap, $"the journal begins after, or ends before, the last record of the checkpoint, {covered}", $"the records after {covered}, if there "
                + "were any");
        if (scan.Break is { } broken)
            Damage(broken, "a record is damaged, and later segments show that it was durable", $"the records after {last}");
        if (scan.Tail == JournalTailState.Lost)
            Damage(TailOf(scan), "a record is damaged, and a later record shows that it was durable", $"the records after {last}");
        if (scan.Unreadable is { } unreadable)
            Damage(unreadable, "the disk cannot read blocks that may belong to the journal", $"perhaps records after {last}");
        if (scan.Tail == JournalTailState.Torn)
            Notice(TailOf(scan).Path, TailOf(scan).Offset, "a record was not completely written; the journal ends before it");
        if (scan.CoveredBreak is { } behind)
            Damage(behind, "a record that the checkpoint covers is damaged", "nothing here; followers that need it get a snapshot");
        var known = Etag.Max(_replica.Facts.Committed, _replica.Facts.Acknowledged);
        if (scan.Last.Etag < known)
            Damage(TailOf(scan), $"the journal ends with {last}, but the control file names {EtagText.Of(known)} as committed or acknowledged", "the records "
                + $"after {last}");
    }

    /// <summary>Checks the headers of files outside the line. The header of a prepared or retired file is zero.</summary>
    private void CheckHeaders(JournalScan scan)
    {
        var block = new byte[SegmentHeader.BlockBytes];
        foreach (var number in scan.Files.Where(number => number <= scan.Newest && !scan.Segments.Exists(segment => segment.Header.Number == number)))
        {
            var place = scan.Place(number, 0);
            using var file = _replica.Files.Open(place.Path, new StorageFileOptions(StorageFileMode.ReadOnly));
            if (StoppedReplica.TryReadFront(file, block) && (!block.AsSpan().ContainsAnyExcept((byte)0) || SegmentHeader.TryRead(block, place.Path, out _)))
                continue;
            if (scan.Gap is null)
                Damage(place, "the header of the segment is damaged", "nothing here, because the checkpoint covers its records; "
                    + "followers that need them get a snapshot");
        }
    }

    private JournalPlace TailOf(JournalScan scan) => scan.Segments.Count > 0
        ? scan.Place(scan.Segments[^1].Header.Number, scan.TailEnd)
        : new JournalPlace(StoreLayout.Journal(_replica.State!), 0);

    private void Damage(JournalPlace place, string what, string lost) => Damage(place.Path, place.Offset, what, lost);

    private void Damage(string file, long? offset, string what, string lost) => _findings.Add(new Finding(IsDamage: true, file, offset, what, lost));

    private void Notice(string file, long? offset, string what) => _findings.Add(new Finding(IsDamage: false, file, offset, what, "nothing"));
}
