using System.Buffers;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// The last records of a journal that goes through the page cache, since its file system has no direct I/O. A write whose sync failed under an earlier process, in the same
/// boot, is read back from the cache and is not on the disk, and no later sync brings it there. So what nothing proves durable is written once more, as it was
/// read, and synced. Called by recovery before anything counts as durable, on the opening thread.
/// </summary>
/// <remarks>
/// Bounded by what a journal has in flight: its last write, and one for each further lane. A crash in between leaves what it found, since the bytes are the same; a failure fails the
/// opening, and the next one begins anew.
/// </remarks>
internal static class UnprovenTail
{
    /// <summary>Writes the records behind <paramref name="proven"/> again, where the disk may not have them; durable when it returns.</summary>
    /// <exception cref="StorageIoException">They could not be written, or are not what was read before: then the disk never had them.</exception>
    public static void Settle(IFileSystem files, string directory, JournalIndex index, UInt128 proven)
    {
        for (var first = index.FirstAfter(proven); first < index.Count;)
        {
            var segment = index[first].Segment;
            using var file = files.Open(SegmentName.PathOf(directory, segment), new StorageFileOptions(StorageFileMode.OpenExisting, Direct: true));
            // Never in the cache before the disk had it.
            if (file.IsDirect)
                return;
            for (; first < index.Count && index[first].Segment == segment; first++)
                WriteAgain(file, index[first]);
            file.Sync();
        }
    }

    private static void WriteAgain(IStorageFile file, JournalEntry entry)
    {
        var count = RecordEnvelope.RecordBytes(entry.Record.BodyBytes);
        var bytes = ArrayPool<byte>.Shared.Rent(count);
        try
        {
            var record = bytes.AsSpan(0, count);
            if (file.Read(record, entry.Offset) < count || !IsRecord(record, entry.Record))
                throw new StorageIoException("Read back", file.Path, $"the record at offset {entry.Offset} is not what was read before; it was not durable, and the next opening ends before it");
            file.Write(record, entry.Offset);
        }
        finally
        {
            ArrayPool<byte>.Shared.Return(bytes);
        }
    }

    /// <summary>The cache may have let it go since it was read, and the disk show what it had before.</summary>
    private static bool IsRecord(ReadOnlySpan<byte> bytes, in RecordRef expected)
    {
        if (!RecordEnvelope.TryRead(bytes, out var envelope) || envelope.BodyBytes != expected.BodyBytes)
            return false;
        var body = bytes.Slice(RecordEnvelope.Bytes, envelope.BodyBytes);
        return RecordBody.Verify(body) && RecordBody.TryReadHeader(body, out var found) && found == expected;
    }
}
