using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>Pages that the newest state no longer reaches, in memory or in the file.</summary>
internal interface IRetiredPages
{
    /// <summary>Their size in bytes.</summary>
    long Bytes { get; }

    /// <summary>By how many bytes they would be more in the file, because deltas are folded into pages there.</summary>
    long Folds { get; }

    /// <summary>How much work it is to free them, in scratch pages.</summary>
    int Work { get; }

    /// <summary>Whether a reader may have a root that reaches them.</summary>
    bool IsReachedBy(in ReaderSlots.Reader reader);
}

/// <summary>
/// Keeps what the newest state no longer reaches until no reader reaches it either. A page's lifetime lasts from the batch that created it to the batch
/// that retired it. It is free as soon as no reader has a root from that time, however old other readers are. Writer only.
/// </summary>
/// <remarks>
/// Pages that cannot be freed are assigned to one of the readers that hold them, the first in the given order, and checked again when that reader is gone.
/// However many pages a long reader holds, they cost nothing until then.
/// </remarks>
/// <param name="readers">The readers that may hold pages.</param>
/// <param name="free">Called with what no reader reaches any more.</param>
internal sealed class RetiredPages<T>(ReaderSlots readers, Action<T> free)
    where T : struct, IRetiredPages
{
    private readonly Queue<T> _waiting = new();
    private readonly Dictionary<(int Slot, ulong Ticket), Held> _held = [];
    private readonly List<(int Slot, ulong Ticket)> _gone = [];
    private long _digestBytes;

    /// <summary>What readers held that are gone, to be checked again.</summary>
    private readonly Stack<List<T>> _returned = new();
    private long _heldBytes;
    private long _heldFolds;

    /// <summary>The work of what was added since the last release.</summary>
    private int _workAdded;

    /// <summary>Bytes that readers hold, as of the last <see cref="Release"/>. Any thread.</summary>
    public long HeldBytes => Volatile.Read(ref _heldBytes);

    /// <summary>The sum of <see cref="IRetiredPages.Folds"/> of what readers hold. Any thread.</summary>
    public long HeldFolds => Volatile.Read(ref _heldFolds);

    /// <summary>The part of <see cref="HeldBytes"/> that digests hold and no other reader. Any thread.</summary>
    public long DigestBytes => Volatile.Read(ref _digestBytes);

    /// <summary>Whether there are no retired pages.</summary>
    public bool IsEmpty => _waiting.Count == 0 && _held.Count == 0 && !HasReturned;

    /// <summary>Whether there are some whose reader is gone.</summary>
    public bool HasReturned => _returned.Count > 0;

    /// <summary>All retired pages.</summary>
    public IEnumerable<T> All => _waiting.Concat(_returned.SelectMany(pages => pages)).Concat(_held.Values.SelectMany(held => held.Pages));

    /// <summary>Adds pages that the published state does not reach.</summary>
    public void Add(T pages)
    {
        _waiting.Enqueue(pages);
        _workAdded += pages.Work;
    }

    /// <summary>Bytes that are assigned to a reader.</summary>
    public long HeldBy(in ReaderSlots.Reader reader) => _held.TryGetValue((reader.Slot, reader.Ticket), out var held) ? held.Bytes : 0;

    /// <summary>Frees what none of the readers reaches, as far as <paramref name="workMax"/> or twice what was added since the last call goes.</summary>
    /// <param name="present">The readers, in the order in which they are responsible for what several of them hold.</param>
    /// <param name="workMax">Work of the least step.</param>
    public void Release(List<ReaderSlots.Reader> present, int workMax)
    {
        foreach (var reader in _held.Keys)
        {
            if (!readers.Holds(reader.Slot, reader.Ticket))
                _gone.Add(reader);
        }
        foreach (var reader in _gone)
        {
            _held.Remove(reader, out var held);
            Count(held!, -held!.Bytes, -held.Folds);
            _returned.Push(held.Pages);
        }
        _gone.Clear();
        var work = Math.Max(workMax, 2 * _workAdded);
        for (_workAdded = 0; work > 0 && TryTake(out var retired);)
        {
            // The work is read before the entry is freed.
            work -= retired.Work;
            if (HolderOf(retired, present) is { } holder)
                Hold(holder, retired);
            else
                free(retired);
        }
    }

    private bool TryTake(out T next)
    {
        if (_waiting.TryDequeue(out next))
            return true;
        if (!_returned.TryPeek(out var pages))
            return false;
        next = pages[^1];
        pages.RemoveAt(pages.Count - 1);
        if (pages.Count == 0)
            _returned.Pop();
        return true;
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
        if (!_held.TryGetValue((reader.Slot, reader.Ticket), out var held))
            _held[(reader.Slot, reader.Ticket)] = held = new Held(reader.IsDigest);
        held.Pages.Add(retired);
        held.Bytes += retired.Bytes;
        held.Folds += retired.Folds;
        Count(held, retired.Bytes, retired.Folds);
    }

    private void Count(Held held, long bytes, long folds)
    {
        Volatile.Write(ref _heldBytes, _heldBytes + bytes);
        Volatile.Write(ref _heldFolds, _heldFolds + folds);
        if (held.IsDigest)
            Volatile.Write(ref _digestBytes, _digestBytes + bytes);
    }

    /// <summary>What one reader holds.</summary>
    private sealed class Held(bool isDigest)
    {
        public bool IsDigest => isDigest;

        public List<T> Pages { get; } = [];

        public long Bytes { get; set; }

        public long Folds { get; set; }
    }
}

/// <summary>A scratch page or run.</summary>
/// <param name="Epoch">Readers that start after this epoch do not reach it.</param>
/// <param name="Page">The page, which stores its batch.</param>
/// <param name="Left">The batch that retired it; the greatest number when only its location changed.</param>
internal readonly record struct RetiredScratch(ulong Epoch, nint Page, ulong Left) : IRetiredPages
{
    private readonly ulong _born = BatchOf(Page);

    /// <inheritdoc/>
    public unsafe long Bytes => ScratchPool.BytesOf((byte*)Page);

    /// <inheritdoc/>
    public long Folds => ((long)Work * Pages.Page.Bytes) - Bytes;

    /// <inheritdoc/>
    public unsafe int Work => ScratchPool.PagesOf((byte*)Page);

    /// <inheritdoc/>
    public bool IsReachedBy(in ReaderSlots.Reader reader) => reader.Reaches(Epoch, _born, Left);

    private static unsafe ulong BatchOf(nint page) => Pages.Page.Batch((byte*)page);
}

/// <summary>A run of the file's pages.</summary>
/// <param name="Epoch">Readers that start after this epoch do not reach it.</param>
/// <param name="Born">Roots of earlier batches, and pins of earlier checkpoints, do not reach it.</param>
/// <param name="Left">The batch that retired it, or a later one.</param>
/// <param name="Revision">Pins of this and later checkpoints do not reach it.</param>
/// <param name="Run">The pages.</param>
internal readonly record struct RetiredRun(ulong Epoch, PageBirth Born, ulong Left, ulong Revision, PageRun Run) : IRetiredPages
{
    /// <inheritdoc/>
    public long Bytes => Run.Count * Page.Bytes;

    /// <inheritdoc/>
    public long Folds => 0;

    /// <inheritdoc/>
    public int Work => 1;

    /// <inheritdoc/>
    public bool IsReachedBy(in ReaderSlots.Reader reader) => reader.Reaches(Epoch, Born.Batch, Left);

    /// <summary>Whether a pin of the checkpoint with this revision reaches them.</summary>
    public bool IsReachedByPin(ulong pinned) => Born.Revision <= pinned && pinned < Revision;
}
