namespace KvCluster.Storage.Pages;

/// <summary>
/// Scratch pages that the newest state does not reach any more, until no reader does. A page has a life, from the batch that made it to the one that left it: it is free as soon as
/// no reader has a root from that time, however old others are. Used on the writer only.
/// </summary>
/// <remarks>
/// A page that cannot go waits for one of the readers that hold it, and is looked at again when that one is gone: however many pages a long reader holds, they cost nothing while it is there.
/// </remarks>
internal sealed unsafe class RetiredPages(ReaderSlots readers, ScratchPool pool)
{
    private readonly Queue<Retired> _waiting = new();
    private readonly Dictionary<(int Slot, ulong Ticket), List<Retired>> _held = [];
    private readonly List<(int Slot, ulong Ticket)> _gone = [];
    private long _heldBytes;

    /// <summary>Bytes that readers hold. Any thread; as of the last <see cref="Release"/>.</summary>
    public long HeldBytes => Volatile.Read(ref _heldBytes);

    /// <summary>Nothing is here.</summary>
    public bool IsEmpty => _waiting.Count == 0 && _held.Count == 0;

    /// <summary>Takes a page or run that the state published in this epoch does not reach.</summary>
    /// <param name="epoch">Readers that come later do not reach it either.</param>
    /// <param name="page">The page, which knows its batch.</param>
    /// <param name="left">The batch that left it; the greatest number when only its place changed.</param>
    public void Add(ulong epoch, nint page, ulong left) => _waiting.Enqueue(new Retired(epoch, page, Page.Batch((byte*)page), left));

    /// <summary>Gives back what none of the readers reaches.</summary>
    public void Release(List<ReaderSlots.Reader> present)
    {
        foreach (var (reader, pages) in _held)
        {
            if (readers.Holds(reader.Slot, reader.Ticket))
                continue;
            _gone.Add(reader);
            foreach (var page in pages)
                _waiting.Enqueue(page);
        }
        foreach (var reader in _gone)
        {
            _held.Remove(reader, out var pages);
            foreach (var page in pages!)
                _heldBytes -= BytesOf(page);
        }
        _gone.Clear();
        while (_waiting.TryDequeue(out var retired))
        {
            if (HolderOf(retired, present) is { } holder)
                Hold(holder, retired);
            else
                pool.Return((byte*)retired.Page);
        }
    }

    private static ReaderSlots.Reader? HolderOf(in Retired retired, List<ReaderSlots.Reader> present)
    {
        foreach (var reader in present)
        {
            if (reader.Reaches(retired.Epoch, retired.Born, retired.Left))
                return reader;
        }
        return null;
    }

    private void Hold(in ReaderSlots.Reader reader, in Retired retired)
    {
        if (!_held.TryGetValue((reader.Slot, reader.Ticket), out var pages))
            _held[(reader.Slot, reader.Ticket)] = pages = [];
        pages.Add(retired);
        Volatile.Write(ref _heldBytes, _heldBytes + BytesOf(retired));
    }

    private static long BytesOf(in Retired retired) => (long)ScratchPool.PagesOf((byte*)retired.Page) * Page.Bytes;

    private readonly record struct Retired(ulong Epoch, nint Page, ulong Born, ulong Left);
}
