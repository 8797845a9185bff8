using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The two meta pages of an open data file. A checkpoint overwrites the older one when everything that it reaches is durable (S2). Any thread may read them;
/// the checkpoint executor writes, the writer calls <see cref="Advance"/>.
/// </summary>
internal sealed class MetaPages
{
    private readonly IStorageFile _file;
    private MetaPage _newest;
    private MetaPage _older;
    private bool _newestIsSynced;
    private bool _olderIsWritten;

    private MetaPages(IStorageFile file, MetaPage newest, MetaPage older, bool newestIsSynced, bool olderIsWritten) =>
        (_file, _newest, _older, _newestIsSynced, _olderIsWritten) = (file, newest, older, newestIsSynced, olderIsWritten);

    /// <summary>The one of the newest checkpoint that is finished. Any thread.</summary>
    public MetaPage Newest => Volatile.Read(ref _newest);

    /// <summary>The other one, which the next checkpoint overwrites: of the checkpoint before, or of the same. Any thread.</summary>
    public MetaPage Older => Volatile.Read(ref _older);

    /// <summary>
    /// Whether the file has both and they are of one checkpoint, as each writes another free map. The first of them was durable before the second was written,
    /// so no older checkpoint counts any more.
    /// </summary>
    public bool AreOfOneCheckpoint => _olderIsWritten && !Newest.FreeDirectory.IsNone && Older.FreeDirectory == Newest.FreeDirectory;

    /// <summary>Writes the meta pages of an empty data file into an empty file. They are durable when this returns.</summary>
    public static MetaPages Create(IStorageFile file, ReadOnlySpan<byte> identity)
    {
        var newest = new MetaPage
        {
            Revision = 2,
            Identity = BinaryPrimitives.ReadUInt128LittleEndian(identity),
            FilePages = 2,
            Trees = new TreeRoot[StoreRoot.TreesMax],
        };
        var older = newest with { Revision = 1 };
        file.Resize(2 * Page.Bytes);
        Write(file, older);
        Write(file, newest);
        file.Sync();
        return new MetaPages(file, newest, older, newestIsSynced: true, olderIsWritten: true);
    }

    /// <summary>Reads both meta pages and checks the newest one that is intact.</summary>
    /// <exception cref="CorruptStoreException">No meta page is intact, or the file is shorter than they say.</exception>
    /// <exception cref="FormatVersionException">The file has another version.</exception>
    public static MetaPages Read(IStorageFile file)
    {
        var path = file.Path;
        var first = TryRead(file, 0);
        var second = TryRead(file, 1);
        if (first is null && second is null)
            throw new CorruptStoreException($"'{path}': neither meta page is intact.");
        var (newest, older) = second is null || first?.Revision > second.Revision ? (first!, second) : (second, first);
        if (newest.FilePages < 2 || newest.FilePages > FreeMap.FilePagesMax)
            throw new CorruptStoreException($"'{path}': its meta page records {newest.FilePages} pages, but a file must have 2 to {FreeMap.FilePagesMax}.");
        if (newest.Trees.Any(tree => !tree.Link.Reference.IsNone && !tree.Link.Reference.IsInFile(newest.FilePages)))
            throw new CorruptStoreException($"'{path}': its meta page has an invalid reference to the root of a tree.");
        if (file.Length < newest.FilePages * Page.Bytes)
            throw new CorruptStoreException($"'{path}' has {file.Length} bytes, but its meta page records {newest.FilePages * Page.Bytes}.");
        // A torn meta page was being written when the power failed. Then only the newest one is needed, and it is on disk.
        return older is not null
            ? new MetaPages(file, newest, older, newestIsSynced: false, olderIsWritten: true)
            : new MetaPages(file, newest, newest with { Revision = newest.Revision - 1 }, newestIsSynced: true, olderIsWritten: false);
    }

    /// <summary>
    /// Called before anything is overwritten that the meta page found at the open does not reach. Its sync may have failed in the previous process. In that
    /// case it is in the system's cache only, and a later sync does not write it to disk. Should it be torn here, the other one counts. And where the other one
    /// could not be read, it is written again, with the same content as this one: it may be newer, and what is torn or damaged now may be readable after
    /// another torn write or on another day. Checkpoint executor.
    /// </summary>
    public void Settle()
    {
        if (!_newestIsSynced)
            WriteDurable(_newest);
        if (!_olderIsWritten)
            WriteDurable(_older);
        (_newestIsSynced, _olderIsWritten) = (true, true);
    }

    /// <summary>Overwrites the meta page with the same number. It is durable when this returns. Checkpoint executor.</summary>
    public void WriteDurable(MetaPage meta)
    {
        Write(_file, meta);
        _file.Sync();
    }

    /// <summary>Makes the meta page of a finished checkpoint the newest. Writer.</summary>
    public void Advance(MetaPage meta)
    {
        Invariant.Check(
            meta.Revision == _newest.Revision + 1, $"The checkpoint of revision {meta.Revision} was finished after the one of revision {_newest.Revision}.");
        Volatile.Write(ref _older, _newest);
        Volatile.Write(ref _newest, meta);
    }

    private static void Write(IStorageFile file, MetaPage meta)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        meta.Encode(buffer.Span);
        file.Write(buffer.Span, meta.PageNumber * Page.Bytes);
    }

    /// <summary>Null if the page is torn, is not a meta page, or cannot be read, which is treated like torn.</summary>
    public static MetaPage? TryRead(IStorageFile file, long number)
    {
        using var buffer = new AlignedBuffer(Page.Bytes);
        try
        {
            return file.Read(buffer.Span, number * Page.Bytes) == Page.Bytes ? MetaPage.TryDecode(buffer.Span, file.Path) : null;
        }
        catch (StorageIoException)
        {
            return null;
        }
    }
}
