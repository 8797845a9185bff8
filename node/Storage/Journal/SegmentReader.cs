using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Journal;

/// <summary>Reads single records from segments and keeps the last file open. One executor.</summary>
internal sealed class SegmentReader(IFileSystem files, string directory) : IDisposable
{
    private IStorageFile? _file;
    private ulong _number;

    /// <summary>The body of a durable record, in a new array.</summary>
    /// <exception cref="CorruptStoreException">The bytes are no longer that record, or cannot be read.</exception>
    public byte[] ReadBody(JournalEntry entry)
    {
        if (_file is null || _number != entry.Segment)
        {
            Close();
            _file = files.Open(SegmentName.PathOf(directory, entry.Segment), new StorageFileOptions(StorageFileMode.OpenExisting));
            _number = entry.Segment;
        }
        var body = GC.AllocateUninitializedArray<byte>(entry.Record.BodyBytes);
        int count;
        try
        {
            count = _file.Read(body, entry.Offset + RecordEnvelope.Bytes);
        }
        catch (StorageIoException failure)
        {
            throw new CorruptStoreException($"'{_file.Path}': the record at offset {entry.Offset} cannot be read: {failure.Message}", failure);
        }
        if (count != body.Length || !RecordBody.TryVerify(body, out var found) || found != entry.Record)
            throw new CorruptStoreException($"'{_file.Path}': the record at offset {entry.Offset} does not match what was written there.");
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
}
