using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>Pages that the newest state does not reach any more: in memory, or of the file.</summary>
internal interface IRetiredPages
{
    /// <summary>How many bytes they are.</summary>
    long Bytes { get; }

    /// <summary>Whether a reader may have a root that reaches them.</summary>
    bool IsReachedBy(in ReaderSlots.Reader reader);
}

/// <summary>
/// What the newest state does not reach any more, until no reader does. A page has a life, from the batch that made it to the one that left it: it is free as soon as
/// no reader has a root from that time, however old others are. Used on the writer only.
/// </summary>
/// <remarks>
/// What cannot go waits for one of the readers that hold it, and is looked at again when that one is gone: however many pages a long reader holds, they cost nothing while it is there.
/// </remarks>
/// <param name="readers">Who may hold them.</param>
/// <param name="free">Told what no reader reaches any more.</param>
internal sealed class RetiredPages<T>(ReaderSlots readers, Action<T> free)
    where T : struct, IRetiredPages
{
    private readonly Queue<T> _waiting = new();
    private readonly Dictionary<(int Slot, ulong Ticket), List<T>> _held = [];
    private readonly List<(int Slot, ulong Ticket)> _gone = [];
    private long _heldBytes;

    /// <summary>Bytes that readers hold. Any thread; as of the last <see cref="Release"/>.</summary>
    public long HeldBytes => Volatile.Read(ref _heldBytes);

    /// <summary>Nothing is here.</summary>
    public bool IsEmpty => _waiting.Count == 0 && _held.Count == 0;

    /// <summary>All that is here.</summary>
    public IEnumerable<T> All => _waiting.Concat(_held.Values.SelectMany(pages => pages));

    /// <summary>Takes pages that the state published by now does not reach.</summary>
    public void Add(T pages) => _waiting.Enqueue(pages);

    /// <summary>Lets go of what none of the readers reaches.</summary>
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
                _heldBytes -= page.Bytes;
        }
        _gone.Clear();
        while (_waiting.TryDequeue(out var retired))
        {
            if (HolderOf(retired, present) is { } holder)
                Hold(holder, retired);
            else
                free(retired);
        }
    }

    private static ReaderSlots.Reader? HolderOf(in T retired, List<ReaderSlots.Reader> present)
    {
        foreach (var reader in present)
        {
            if (retired.IsReachedBy(reader))
                return reader;
        }
        return null;
    }

    private void Hold(in ReaderSlots.Reader reader, in T retired)
    {
        if (!_held.TryGetValue((reader.Slot, reader.Ticket), out var pages))
            _held[(reader.Slot, reader.Ticket)] = pages = [];
        pages.Add(retired);
        Volatile.Write(ref _heldBytes, _heldBytes + retired.Bytes);
    }
}

/// <summary>A scratch page or run.</summary>
/// <param name="Epoch">Readers that come later do not reach it.</param>
/// <param name="Page">The page, which knows its batch.</param>
/// <param name="Left">The batch that left it; the greatest number when only its place changed.</param>
internal readonly record struct RetiredScratch(ulong Epoch, nint Page, ulong Left) : IRetiredPages
{
    private readonly ulong _born = BatchOf(Page);

    /// <inheritdoc/>
    public unsafe long Bytes => (long)ScratchPool.PagesOf((byte*)Page) * Pages.Page.Bytes;

    /// <inheritdoc/>
    public bool IsReachedBy(in ReaderSlots.Reader reader) => reader.Reaches(Epoch, _born, Left);

    private static unsafe ulong BatchOf(nint page) => Pages.Page.Batch((byte*)page);
}

/// <summary>A run of the file's pages.</summary>
/// <param name="Epoch">Readers that come later do not reach it.</param>
/// <param name="Born">Roots of earlier batches, and pins of earlier checkpoints, do not reach it.</param>
/// <param name="Left">The batch that left it, or a later one.</param>
/// <param name="Revision">Pins of this and later checkpoints do not reach it.</param>
/// <param name="Run">The pages.</param>
internal readonly record struct RetiredRun(ulong Epoch, PageBirth Born, ulong Left, ulong Revision, PageRun Run) : IRetiredPages
{
    /// <inheritdoc/>
    public long Bytes => Run.Count * Page.Bytes;

    /// <inheritdoc/>
    public bool IsReachedBy(in ReaderSlots.Reader reader) => reader.Reaches(Epoch, Born.Batch, Left);

    /// <summary>Whether a pin of the checkpoint with this revision reaches them.</summary>
    public bool IsReachedByPin(ulong pinned) => Born.Revision <= pinned && pinned < Revision;
}
