using System.Buffers;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// The last records of a journal that is written through the page cache, because its file system has no direct I/O. If a sync failed in an earlier process
/// in the same boot, the record is read back from the cache although it is not on disk, and no later sync writes it. Records that nothing proves durable
/// are therefore rewritten as they were read, and synced. Recovery calls this before anything counts as durable, on the opening thread.
/// </summary>
/// <remarks>
/// The amount is bounded by what a journal has in flight: its last write, and one for each further lane. A crash here changes nothing, since the bytes are
/// the same. A failure fails the open, and the next one starts over.
/// </remarks>
internal static class UnsyncedTailRewrite
{
    /// <summary>Rewrites the records after <paramref name="proven"/> if the disk may not have them. They are durable when this returns.</summary>
    /// <exception cref="StorageIoException">A record could not be written, or is not what was read before; in that case the disk never had it.</exception>
    public static void Settle(IFileSystem files, string directory, JournalIndex index, Etag proven)
    {
        for (var first = index.FirstAfter(proven); first < index.Count;)
        {
            var segment = index[first].Segment;
            using var file = files.Open(SegmentName.PathOf(directory, segment), new StorageFileOptions(StorageFileMode.OpenExisting, Direct: true));
            // With direct I/O a record is never only in the cache.
            if (file.IsDirect)
                return;
            for (; first < index.Count && index[first].Segment == segment; first++)
                WriteAgain(file, index[first]);
            file.Sync();
        }
    }

    private static void WriteAgain(IStorageFile file, JournalEntry entry)
    {
        var count = entry.Bytes;
        var bytes = ArrayPool<byte>.Shared.Rent(count);
        try
        {
            var record = bytes.AsSpan(0, count);
            if (file.Read(record, entry.Offset) < count || !IsRecord(record, entry.Record))
                throw new StorageIoException("read back", file.Path, $"the record at offset {entry.Offset} differs from what was read before; "
                    + "it was not durable, and the next open ends the journal before it");
            file.Write(record, entry.Offset);
        }
        finally
        {
            ArrayPool<byte>.Shared.Return(bytes);
        }
    }

    /// <summary>Whether the bytes are still the record. The cache may have evicted it since it was read, so that the disk's older content shows.</summary>
    private static bool IsRecord(ReadOnlySpan<byte> bytes, in RecordRef expected)
    {
        if (!RecordEnvelope.TryRead(bytes, out var envelope) || envelope.BodyBytes != expected.BodyBytes)
            return false;
        var body = bytes.Slice(RecordEnvelope.Bytes, envelope.BodyBytes);
        return RecordBody.TryVerify(body, out var found) && found == expected;
    }
}
