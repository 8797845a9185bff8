using System.Globalization;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>
/// Keeps the bodies of truncated records for inspection, as files in a directory of their own, which are bounded in number. Used by the lane that executes
/// the truncation.
/// </summary>
/// <param name="context">The shard's disk and bounds.</param>
/// <param name="journalDirectory">The directory of the segments.</param>
/// <param name="asideDirectory">The directory of the files.</param>
internal sealed class TruncatedRecords(StoreContext context, string journalDirectory, string asideDirectory) : IDisposable
{
    private readonly SegmentReader _reader = new(context.Files, journalDirectory);

    /// <summary>
    /// Writes the bodies one after the other into one file, which is durable when this returns. Its name contains the number of the segment that begins
    /// behind the truncation, and the etag of the first record.
    /// </summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full; after a full disk the call can be repeated.</exception>
    public void Keep(IReadOnlyList<JournalEntry> records, ulong nextSegment)
    {
        if (records.Count == 0)
            return;
        var files = context.Files;
        files.CreateDirectory(asideDirectory);
        files.SyncDirectory(Path.GetDirectoryName(asideDirectory)!);
        var names = files.List(asideDirectory);
        for (var index = 0; index <= names.Count - context.Options.AsideFilesMax; index++)
            files.Delete(Path.Combine(asideDirectory, names[index]));
        var name = string.Create(CultureInfo.InvariantCulture, $"{nextSegment:x16}-{records[0].Record.Epoch:x16}{records[0].Record.Etag.Change:x16}.bodies");
        var path = Path.Combine(asideDirectory, name);
        // An earlier attempt that found no space may have left the file.
        files.Delete(path);
        using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));
        var offset = 0L;
        try
        {
            foreach (var record in records)
            {
                var body = TryReadBody(record);
                if (body.IsEmpty)
                    continue;
                file.Write(body.Span, offset);
                offset += body.Length;
            }
            file.Sync();
            files.SyncDirectory(asideDirectory);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull)
        {
            files.Delete(path);
            throw;
        }
        _reader.Close();
    }

    /// <inheritdoc/>
    public void Dispose() => _reader.Dispose();

    /// <summary>Empty if the body is damaged. That is no failure, because the record is being truncated.</summary>
    private ReadOnlyMemory<byte> TryReadBody(JournalEntry record)
    {
        try
        {
            return record.Body.IsEmpty ? _reader.ReadBody(record) : record.Body;
        }
        catch (CorruptStoreException damage)
        {
            StoreLog.CutRecordDamaged(context.Log, damage.Message);
            return default;
        }
    }
}
