using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>Reads records from segments and keeps the last file open. One executor.</summary>
internal sealed class SegmentReader(IFileSystem files, string directory) : IDisposable
{
    private IStorageFile? _file;
    private ulong _number;

    /// <summary>Bytes that one read brings, at most.</summary>
    private const int RunBytesMax = 1 << 20;

    /// <summary>
    /// How many durable records, the first of some, are behind each other in a segment and have no more bytes together than one read brings. At least one.
    /// </summary>
    /// <param name="entries">The records, in order. Of those that count, none is in memory.</param>
    /// <param name="bodyBytesMax">The most bytes of bodies, unless the first alone has more.</param>
    public static int RunLength(ReadOnlySpan<JournalEntry> entries, long bodyBytesMax)
    {
        var (count, bodyBytes) = (1, (long)entries[0].Record.BodyBytes);
        for (; count < entries.Length; count++)
        {
            var (before, entry) = (entries[count - 1], entries[count]);
            bodyBytes += entry.Record.BodyBytes;
            var follows = entry.Segment == before.Segment && entry.Offset == before.End;
            if (!follows || !entry.Body.IsEmpty || entry.End - entries[0].Offset > RunBytesMax || bodyBytes > bodyBytesMax)
                break;
        }
        return count;
    }

    /// <summary>
    /// Reads durable records that are behind each other in a segment, with one call: small records by one call each took a writer 100 ms for a mebibyte.
    /// Returns how many of them, the first ones, are what was written there; the bodies are in one new array.
    /// </summary>
    public int ReadRun(ReadOnlySpan<JournalEntry> entries, Span<ReadOnlyMemory<byte>> bodies)
    {
        var (first, end) = (entries[0].Offset, entries[^1].End);
        var run = GC.AllocateUninitializedArray<byte>((int)(end - first));
        int bytes;
        try
        {
            bytes = Open(entries[0].Segment).Read(run, first);
        }
        catch (StorageIoException)
        {
            // One of the records cannot be read. Reading each of them alone shows which one.
            return 0;
        }
        var count = 0;
        for (; count < entries.Length; count++)
        {
            var (entry, from) = (entries[count], (int)(entries[count].Offset - first) + RecordEnvelope.Bytes);
            var body = run.AsMemory(from, entry.Record.BodyBytes);
            if (from + body.Length > bytes || !RecordBody.TryVerify(body.Span, out var found) || found != entry.Record)
                break;
            bodies[count] = body;
        }
        return count;
    }

    /// <summary>The body of a durable record, in a new array.</summary>
    /// <exception cref="CorruptStoreException">The bytes are no longer that record, or cannot be read.</exception>
    public byte[] ReadBody(JournalEntry entry)
    {
        var file = Open(entry.Segment);
        var body = GC.AllocateUninitializedArray<byte>(entry.Record.BodyBytes);
        int count;
        try
        {
            count = file.Read(body, entry.Offset + RecordEnvelope.Bytes);
        }
        catch (StorageIoException failure)
        {
            throw new CorruptStoreException($"'{file.Path}': the record at offset {entry.Offset} cannot be read: {failure.Message}", failure);
        }
        if (count != body.Length || !RecordBody.TryVerify(body, out var found) || found != entry.Record)
            throw new CorruptStoreException($"'{file.Path}': the record at offset {entry.Offset} does not match what was written there.");
        return body;
    }

    /// <summary>Closes the file. Call before segments are recycled.</summary>
    public void Close()
    {
        _file?.Dispose();
        _file = null;
    }

    /// <inheritdoc/>
    public void Dispose() => Close();

    private IStorageFile Open(ulong segment)
    {
        if (_file is { } open && _number == segment)
            return open;
        Close();
        _number = segment;
        return _file = files.Open(SegmentName.PathOf(directory, segment), new StorageFileOptions(StorageFileMode.OpenExisting));
    }
}
