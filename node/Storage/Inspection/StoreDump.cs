using System.Globalization;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>What to list of a directory besides its structure.</summary>
/// <param name="Prefix">List keys and sets whose keys begin so; null lists none.</param>
/// <param name="KeysMax">At most as many keys, and as many sets.</param>
/// <param name="RecordsMax">Records to list, the newest ones.</param>
internal readonly record struct DumpRequest(byte[]? Prefix, int KeysMax, int RecordsMax);

/// <summary>
/// Writes what a replica's directory contains, as far as it can be read, one line each: control file, meta pages, free map, trees, segments, records and
/// keys. Changes nothing. One thread.
/// </summary>
internal sealed class StoreDump(StoppedReplica replica, TextWriter output)
{
    /// <summary>Writes all that is asked for.</summary>
    public void Write(in DumpRequest request)
    {
        WriteControl();
        if (replica.State is null)
        {
            Line($"state    none");
            return;
        }
        Line($"state    {replica.State}");
        foreach (var meta in replica.Metas)
            WriteMeta(meta);
        if (replica.Free is { } free)
            Line($"map      {replica.DataBytes / Page.Bytes} pages in the file; {Sum(free.UsedRuns())} in use, {Sum(free.FreeRuns())} free, "
                + $"{Sum(free.PendingRuns())} pending");
        WriteJournal(request.RecordsMax);
        if (request.Prefix is not null)
            WriteKeys(request.Prefix, request.KeysMax);
    }

    private static long Sum(List<PageRun> runs) => runs.Sum(static run => run.Count);

    private void WriteControl()
    {
        if (replica.Quarantined is { } reason)
            Line($"mark     quarantined: {reason}");
        for (var index = 0; index < replica.Slots.Length; index++)
        {
            if (replica.Slots[index] is not { State: { } state } slot)
            {
                Line($"control  slot {index}: not intact");
                continue;
            }
            Line($"control  slot {index}: sequence {slot.Sequence}, replica {state.ReplicaId:x16}, shard {state.Shard}{(state.Removed ? ", removed" : "")}, "
                + $"cluster {state.ClusterHash:x16}");
            Line($"         promised epoch {state.PromisedEpoch} to replica {state.PromisedLeader:x16}; committed {EtagText.Of(state.Committed)}, acknowledged "
                + $"{EtagText.Of(state.Acknowledged)}");
            Line($"         generation {state.Generation}, revision {state.CoordinatorRevision}, recovery {state.Recovery}, longest lease "
                + $"{state.LeaseLongestMs} ms");
        }
    }

    private void WriteMeta(MetaPage? meta)
    {
        if (meta is null)
        {
            Line($"meta     not intact");
            return;
        }
        var covered = meta.CheckpointPosition;
        Line($"meta     revision {meta.Revision}{(meta == replica.Newest ? ", current" : "")}: covers {EtagText.Of(covered.Etag)}; "
            + $"replay from segment {covered.Position.Segment} at offset {covered.Position.Offset}; {meta.FilePages} pages");
        for (var tree = 0; tree < meta.Trees.Length; tree++)
        {
            if (meta.Trees[tree] is { Link.Reference.IsNone: false } root)
                Line($"tree     {TreeText.Of((TreeId)tree)}: {root.Count} keys, root in page {root.Link.Reference.Number}, checksum {root.Link.Checksum:x8}");
        }
    }

    private void WriteJournal(int recordsMax)
    {
        var scan = replica.Journal!;
        foreach (var number in scan.Files)
        {
            var place = scan.Place(number, 0);
            using var file = replica.Files.Open(place.Path, new StorageFileOptions(StorageFileMode.ReadOnly));
            var block = new byte[SegmentHeader.BlockBytes];
            var isOnLine = scan.Segments.Exists(segment => segment.Header.Number == number);
            Line(StoppedReplica.TryReadFront(file, block) && SegmentHeader.TryRead(block, place.Path, out var header)
                ? $"segment  {number}: {file.Length} bytes, incarnation {header.Incarnation:x16}, begins after {EtagText.Of(header.LastEtag)}, follows segment "
                    + $"{header.PredecessorNumber} from {header.PredecessorEnd}{(isOnLine ? "" : "; not part of the journal")}"
                : $"segment  {number}: {file.Length} bytes, no intact header{(number > scan.Newest ? "; not used yet" : "")}");
        }
        Line($"journal  {scan.Entries.Count} records, {EtagText.Of(scan.Base.Etag)} to {EtagText.Of(scan.Last.Etag)}; end: "
            + $"{scan.Tail.ToString().ToLowerInvariant()}");
        using var reader = new SegmentReader(replica.Files, StoreLayout.Journal(replica.State!));
        foreach (var entry in scan.Entries.Skip(Math.Max(0, scan.Entries.Count - recordsMax)))
            WriteRecord(reader, entry);
    }

    private void WriteRecord(SegmentReader reader, JournalEntry entry)
    {
        string operations;
        try
        {
            operations = string.Create(CultureInfo.InvariantCulture, $"{RecordBody.OperationCount(reader.ReadBody(entry))} operations");
        }
        catch (CorruptStoreException)
        {
            operations = "body damaged";
        }
        Line($"record   segment {entry.Segment} at {entry.Offset}: {EtagText.Of(entry.Record.Etag)}, {operations}, {entry.Record.BodyBytes} "
            + $"bytes{(entry.Record.Flags == RecordFlags.None ? "" : $", {entry.Record.Flags}")}");
    }

    private void WriteKeys(byte[] prefix, int keysMax)
    {
        if (replica is not { Space: { } space, Newest: { } newest })
            return;
        foreach (var tree in (TreeId[])[TreeId.Kv, TreeId.Sets])
            new TreeReading(space, new KeyListing(tree, prefix, keysMax, output)).Read(newest.Trees[(int)tree]);
    }

    private void Line(string text) => output.WriteLine(text);
}
