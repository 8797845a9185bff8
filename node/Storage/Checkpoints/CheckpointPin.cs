namespace KvCluster.Storage.Pages;

/// <summary>
/// Keeps the pages of one checkpoint as they are, so that they can be copied to another replica: written at the same places of an empty file they are a data file
/// with that checkpoint. Any thread; to be disposed soon, since the file grows meanwhile.
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
    public Coverage Coverage => _meta.Coverage;

    /// <summary>Length that the copy must have, in bytes.</summary>
    public long FileBytes => _meta.FilePages * Page.Bytes;

    /// <summary>The pages to copy, in the file's order, the two meta pages first.</summary>
    public IReadOnlyList<PageRun> Runs { get; }

    /// <summary>Reads pages of one run into memory of a multiple of 8,192 bytes. Both meta pages read as this checkpoint's.</summary>
    public void ReadPages(long first, Span<byte> destination)
    {
        for (; !destination.IsEmpty && first < 2; first++, destination = destination[Page.Bytes..])
            (first == _meta.PageNumber ? _meta : _meta with { Revision = _meta.Revision - 1 }).Encode(destination);
        if (!destination.IsEmpty)
            _store.ReadFilePages(first, destination);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        if (Interlocked.Exchange(ref _isDisposed, 1) == 0)
            _store.Unpin(_meta.Revision);
    }
}
