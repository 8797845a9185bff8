using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// Keeps the pages of one checkpoint as they are, so that they can be copied to another replica: written at the same places of an empty file they are a data file
/// with that checkpoint. Any thread; to be disposed soon, since the file grows meanwhile: its owner sees to that.
/// </summary>
internal sealed class CheckpointPin : IDisposable
{
    private readonly PageStore _store;
    private readonly MetaPage _meta;
    private int _isDisposed;

    internal CheckpointPin(PageStore store, MetaPage meta, IReadOnlyList<PageRun> runs)
    {
        _store = store;
        _meta = meta;
        Runs = runs;
    }

    /// <summary>What the checkpoint covers.</summary>
    public CheckpointPosition CheckpointPosition => _meta.CheckpointPosition;

    /// <summary>Length that the copy must have, in bytes.</summary>
    public long FileBytes => _meta.FilePages * Page.Bytes;

    /// <summary>The file's path.</summary>
    public string Path => _store.File.Path;

    /// <summary>The pages to copy, in the file's order, the two meta pages first.</summary>
    public IReadOnlyList<PageRun> Runs { get; }

    /// <summary>Reads pages of one run from the disk into aligned memory of a multiple of 8,192 bytes, unchecked. Both meta pages read as this checkpoint's.</summary>
    /// <exception cref="Files.StorageIoException">The disk cannot read them.</exception>
    public void ReadPages(long first, Span<byte> destination)
    {
        for (; !destination.IsEmpty && first < 2; first++, destination = destination[Page.Bytes..])
            (first == _meta.PageNumber ? _meta : _meta with { Revision = _meta.Revision - 1 }).Encode(destination);
        if (!destination.IsEmpty)
            _store.ReadFilePages(first, destination);
    }

    /// <summary>A page that was read is not what was written: ends the store that it is of.</summary>
    public void TellDamage(CorruptStoreException damage) => _store.Space.Damaged?.Invoke(damage);

    /// <inheritdoc/>
    public void Dispose()
    {
        if (Interlocked.Exchange(ref _isDisposed, 1) == 0)
            _store.Unpin(_meta.Revision);
    }
}
