using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// Keeps the pages of one checkpoint unchanged, so that they can be copied to another replica. Written at the same offsets of an empty file, they form a
/// data file with that checkpoint. Any thread. The file grows while the pin is open, so its owner makes sure that it is disposed soon.
/// </summary>
internal sealed class CheckpointPin : IDisposable
{
    private readonly PageStore _store;
    private readonly CheckpointPins _pins;
    private readonly MetaPage _meta;
    private int _isDisposed;

    internal CheckpointPin(PageStore store, CheckpointPins pins, MetaPage meta, IReadOnlyList<PageRun> runs)
    {
        _store = store;
        _pins = pins;
        _meta = meta;
        Runs = runs;
    }

    /// <summary>What the checkpoint covers.</summary>
    public CheckpointPosition CheckpointPosition => _meta.CheckpointPosition;

    /// <summary>Required length of the copy in bytes.</summary>
    public long FileBytes => _meta.FilePages * Page.Bytes;

    /// <summary>The file's path.</summary>
    public string Path => _store.File.Path;

    /// <summary>The pages to copy, in file order, starting with the two meta pages.</summary>
    public IReadOnlyList<PageRun> Runs { get; }

    /// <summary>
    /// Reads pages of one run from disk, unverified, into aligned memory whose length is a multiple of 8,192 bytes. Both meta pages are returned as this
    /// checkpoint's.
    /// </summary>
    /// <exception cref="Files.StorageIoException">The pages cannot be read.</exception>
    public void ReadPages(long first, Span<byte> destination)
    {
        for (; !destination.IsEmpty && first < 2; first++, destination = destination[Page.Bytes..])
            (first == _meta.PageNumber ? _meta : _meta with { Revision = _meta.Revision - 1 }).Encode(destination);
        if (!destination.IsEmpty)
            _store.ReadFilePages(first, destination);
    }

    /// <summary>Reports that a page that was read is not what was written. This stops the store.</summary>
    public void TellDamage(CorruptStoreException damage) => _store.Space.Damaged?.Invoke(damage);

    /// <inheritdoc/>
    public void Dispose()
    {
        if (Interlocked.Exchange(ref _isDisposed, 1) == 0)
            _pins.Unpin(_meta.Revision);
    }
}
