using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Which pages of the file are free. The newest checkpoint's map has two bits per page: free, and pending, which means retired since the previous
/// checkpoint, whose meta page still reaches the page. Two more sets exist in memory only, both of free pages that no snapshot or pin holds: reusable ones,
/// which have space on the disk, and holes, whose space the file system has back. Used by the writer and, between the begin and the finish of a checkpoint,
/// by the checkpoint executor; never by both at once.
/// </summary>
/// <remarks>In the file it is in <see cref="FreeMapPages"/>, of which a checkpoint writes those that changed.</remarks>
internal sealed class FreeMap
{
    /// <summary>
    /// The shortest run of pages whose space is worth giving back, 1 MiB: a long hole costs a call now and an allocation later, and short ones would leave
    /// the file in pieces.
    /// </summary>
    public const int HolePagesMin = (1 << 20) / Page.Bytes;

    /// <summary>
    /// The shortest run whose space is given back while the store is quiescent or the disk full: a single page. After random puts most free runs have one to
    /// three pages, and the space of longer ones alone would leave most of it allocated.
    /// </summary>
    public const int HolePagesMinAny = 1;

    /// <summary>
    /// The longest run whose space is given back at once, 16 MiB. The file system holds the file for that time, and accesses to pages that are not in memory
    /// wait.
    /// </summary>
    public const int HolePagesMax = (16 << 20) / Page.Bytes;

    /// <summary>
    /// Pages among which one step looks for holes: 8 GiB take some hundredths of a millisecond, and so do 256 MiB if short runs count, of which there may be
    /// many.
    /// </summary>
    private const long SearchPages = 1 << 20;
    private const long SearchPagesForShort = 1 << 15;

    /// <summary>
    /// Reusable pages that are always kept, 1 MiB: with them a checkpoint of some deletes goes through on a full disk, whatever else takes the space that is
    /// given back. What becomes a hole leaves as much again, so that the end of the file can be cut while some of the last pages are reusable.
    /// </summary>
    private const long ReusablePagesMin = (1 << 20) / Page.Bytes;

    /// <summary>
    /// The most pages that a file may have: 1 TiB. Two levels of the directory could list more, but the table of the runs in a snapshot has to fit into
    /// memory.
    /// </summary>
    public const long FilePagesMax = 1L << 27;

    /// <summary>Pages of the map itself that a checkpoint usually takes.</summary>
    private const long MapPagesWanted = 2;

    private readonly FreeExtents _extents = new();
    private readonly FreeExtents _holeExtents = new();
    private readonly FreeMapPages _pages = new();
    private readonly PageBirths _births = new();
    private readonly PageBitmap _free = new();
    private readonly PageBitmap _pending = new();
    private readonly PageBitmap _reusable = new();
    private readonly PageBitmap _holes = new();

    /// <summary>Pages that the checkpoint in progress has still to take, and those that it took.</summary>
    private long _wanted;
    private long _taken;

    /// <summary>Runs that may become holes, and the page before which to look for more.</summary>
    private readonly List<PageRun> _longRuns = [];
    private long _searchEnd;

    /// <summary>The map before the checkpoint in progress; 0 pages while there is none.</summary>
    private readonly (PageBitmap Free, PageBitmap Pending, PageBitmap Reusable, PageBitmap Holes) _saved = (new(), new(), new(), new());
    private long _savedPages;

    /// <summary>
    /// Runs that the map in the file calls pending although they are free (<see cref="FreePending"/>), and those before the checkpoint in progress.
    /// </summary>
    private List<PageRun> _freed = [];
    private List<PageRun> _freedBefore = [];

    /// <summary>Pages of the file, in use or free.</summary>
    public long FilePages { get; private set; } = 2;

    /// <summary>
    /// Reads the map to which a meta page refers. All free pages are reusable; which of them are holes is to be told by <see cref="AddHole"/>.
    /// </summary>
    /// <param name="space">Resolves references.</param>
    /// <param name="meta">The meta page.</param>
    /// <param name="isAlone">Whether no other checkpoint is to be reached, so that pending pages are free.</param>
    /// <exception cref="CorruptStoreException">A page of the map is not what was written.</exception>
    public static FreeMap Load(PageSpace space, MetaPage meta, bool isAlone = false)
    {
        var map = new FreeMap { FilePages = meta.FilePages };
        map.Reserve();
        map._pages.Load(space, meta, map._free, map._pending);
        if (isAlone)
            map.FreePending();
        map._reusable.CopyFrom(map._free);
        return map;
    }

    /// <summary>The pages that hold the map itself, except its directory.</summary>
    public IEnumerable<PageLink> MapPages() => _pages.Places();

    /// <summary>Number of pages that the next checkpoint may take, without holes.</summary>
    public long ReusablePages => _reusable.Count;

    /// <summary>Runs of free pages.</summary>
    public List<PageRun> FreeRuns() => _free.Runs();

    /// <summary>Runs of pages that the next checkpoint may take, then those that it may take if the disk has space for them.</summary>
    public List<PageRun> ReusableRuns() => [.. _reusable.Runs(), .. _holes.Runs()];

    /// <summary>Number of pages that the newest checkpoint does not reach and that have space on the disk.</summary>
    public long SparePages => _free.Count + _pending.Count - _holes.Count;

    /// <summary>Number of pages that only the checkpoint before the newest reaches.</summary>
    public long PendingPages => _pending.Count;

    /// <summary>Number of pages that the newest checkpoint reaches.</summary>
    public long UsedPages => FilePages - _free.Count - _pending.Count;

    /// <summary>Notes that reusable pages have no space on the disk.</summary>
    public void AddHole(PageRun run)
    {
        Invariant.Check(_reusable.CountIn(run) == run.Count, $"Of the {run.Count} pages from {run.First} on, which have no space, some are not reusable.");
        _reusable.Remove(run);
        _holes.Add(run);
    }

    /// <summary>Runs of pages retired since the checkpoint before the newest.</summary>
    public List<PageRun> PendingRuns() => _pending.Runs();

    /// <summary>Runs of pages that are neither free nor pending: what the newest checkpoint reaches, including the map and the meta pages.</summary>
    public List<PageRun> UsedRuns()
    {
        var used = new PageBitmap();
        used.Reserve(FilePages);
        used.Add(new PageRun(0, FilePages));
        for (var word = 0; word * 64L < FilePages; word++)
            used.Set(word, used.Words[word] & ~(_free.Words[word] | _pending.Words[word]));
        return used.Runs();
    }

    /// <summary>Makes pages reusable that no meta page, snapshot, pin or root reaches any more.</summary>
    public void AllowReuse(PageRun run)
    {
        Invariant.Check(
            _free.CountIn(run) == run.Count && _reusable.CountIn(run) + _holes.CountIn(run) == 0,
            $"Pages of the {run.Count} from {run.First} on were released for reuse twice, or while in use.");
        _reusable.Add(run);
    }

    /// <summary>The point from which the content of a page may be reachable.</summary>
    public PageBirth BornOf(long page) => _births.Of(page);

    /// <summary>Begins the map of the next checkpoint: pages that were pending become free in it, and pages retired since then become pending.</summary>
    /// <param name="left">Pages that the newest checkpoint reaches and the new one does not.</param>
    /// <param name="pagesWanted">About how many pages will be taken.</param>
    /// <param name="born">The point from which the pages that are placed may be reachable.</param>
    public void BeginNext(List<PageRun> left, long pagesWanted, PageBirth born)
    {
        _longRuns.Clear();
        _searchEnd = 0;
        _births.Begin(born);
        _savedPages = FilePages;
        _saved.Free.CopyFrom(_free);
        _saved.Pending.CopyFrom(_pending);
        _saved.Reusable.CopyFrom(_reusable);
        _saved.Holes.CopyFrom(_holes);
        _pages.BeginNext();
        // Also what was changed since the last map was written.
        (_freedBefore, _freed) = (_freed, []);
        foreach (var run in _freedBefore.Concat(FreeAllPending()))
            _pages.Change(run);
        foreach (var run in left)
            LeavePages(run);
        BeginTaking(pagesWanted);
        (_wanted, _taken) = (pagesWanted, 0);
    }

    /// <summary>
    /// Takes consecutive pages for a checkpoint: reusable ones, or in a hole if no others are long enough, which may find the disk full. When no hole is long
    /// enough either, the file grows.
    /// </summary>
    public long Take(int pages, FileGrowth grow)
    {
        if (!_extents.TryTake(pages, out var first) && !_holeExtents.TryTake(pages, out first))
        {
            Grow(pages, grow);
            _ = _extents.TryTake(pages, out first);
        }
        var run = new PageRun(first, pages);
        Invariant.Check(
            _reusable.CountIn(run) + _holes.CountIn(run) == pages, $"The {pages} pages from {first} on were taken, but some of them are not reusable.");
        _wanted -= pages;
        _taken += pages;
        _free.Remove(run);
        _reusable.Remove(run);
        _holes.Remove(run);
        _pages.Change(run);
        _births.Place(run);
        return first;
    }

    /// <summary>
    /// Leaves out of the new map the end of the file, if that is free and the next checkpoint will probably not need it. Called when all pages of the trees
    /// are placed.
    /// </summary>
    public void CutEnd()
    {
        var cut = FreePagesAtEnd(PagesToSpare());
        if (cut < HolePagesMin)
            return;
        FilePages -= cut;
        var end = new PageRun(FilePages, cut);
        foreach (var pages in (PageBitmap[])[_free, _reusable, _holes])
            pages.Remove(end);
        _pages.Change(end);
        foreach (var place in _pages.Shrink(FilePages))
            LeavePages(new PageRun(place.Number, 1));
        BeginTaking(MapPagesWanted);
    }

    /// <summary>Places and writes each map page that changed, and the directory, to which it returns a link.</summary>
    public PageLink WriteNext(PageWriter writer, FileGrowth grow, Etag etag) =>
        _pages.WriteNext(writer, etag, _free, _pending, () => Take(1, grow), place => LeavePages(new PageRun(place.Number, 1)));

    /// <summary>
    /// Looks for a run whose space can be given back to the file system, because no meta page, snapshot, pin or root reaches it, and the next checkpoint will
    /// probably not need it. The search goes from the back of the file to the front, so that what is taken next is in front. Writer,
    /// while no checkpoint is in progress.
    /// </summary>
    /// <param name="pagesMin">The shortest run that is looked for: 1 includes free pages between pages in use.</param>
    /// <param name="hole">The run, which is a hole from here on. Empty if this part of the search has found none.</param>
    /// <returns>False if there is none before the next checkpoint.</returns>
    public bool TryTakeHole(int pagesMin, out PageRun hole)
    {
        hole = default;
        var spare = PagesToSpare() - ReusablePagesMin;
        if (spare < pagesMin || (_longRuns.Count == 0 && _searchEnd == 0))
            return false;
        if (_longRuns.Count == 0)
        {
            var end = _searchEnd;
            var pages = pagesMin < HolePagesMin ? SearchPagesForShort : SearchPages;
            _searchEnd = (end - 1) / pages * pages;
            _reusable.CollectRuns(_longRuns, pagesMin, _searchEnd, _searchEnd + pages);
            return true;
        }
        var run = _longRuns[^1];
        _longRuns.RemoveAt(_longRuns.Count - 1);
        var count = Math.Min(Math.Min(run.Count, HolePagesMax), spare);
        hole = new PageRun(run.First + run.Count - count, count);
        if (run.Count - count >= pagesMin)
            _longRuns.Add(new PageRun(run.First, run.Count - count));
        AddHole(hole);
        return true;
    }

    /// <summary>
    /// What is pending is free: the meta page that reached it was overwritten by another one of the newest checkpoint. The map in the file says so from the
    /// next checkpoint on.
    /// </summary>
    public void FreePending() => _freed = FreeAllPending();

    /// <summary>Keeps the new map after the checkpoint has finished.</summary>
    public void Keep() => (_savedPages, _searchEnd) = (0, FilePages);

    /// <summary>
    /// Lets the search for holes begin again. Called when the store is quiescent: shorter ones are looked for than before, and the next checkpoint is not
    /// expected to be like the last one. Writer, while no checkpoint is in progress.
    /// </summary>
    public void SearchAgain()
    {
        _longRuns.Clear();
        (_searchEnd, _taken) = (FilePages, 0);
    }

    /// <summary>Restores the previous map after the checkpoint failed before its meta page. The file may stay longer.</summary>
    public void Restore()
    {
        if (_savedPages == 0)
            return;
        (FilePages, _savedPages) = (_savedPages, 0);
        _free.CopyFrom(_saved.Free);
        _pending.CopyFrom(_saved.Pending);
        _reusable.CopyFrom(_saved.Reusable);
        // Some of these holes have space now. They still count as holes, which the next checkpoint takes last.
        _holes.CopyFrom(_saved.Holes);
        _freed = _freedBefore;
        _pages.Restore();
    }

    /// <summary>
    /// Reusable pages beyond what the next checkpoint needs if it is like this one. It also has the pages that this one frees, which are reusable by then.
    /// </summary>
    private long PagesToSpare() =>
        _reusable.Count - Math.Max(ReusablePagesMin, _taken - (_free.Count - _reusable.Count - _holes.Count));

    /// <summary>The number of pages at the end of the file that are holes, or reusable but at most so many of these.</summary>
    private long FreePagesAtEnd(long reusableMax)
    {
        var end = FilePages;
        for (long holes = -1, reusable = 0; holes != 0 || reusable != 0;)
        {
            holes = _holes.CountBefore(end);
            reusable = Math.Clamp(reusableMax, 0, _reusable.CountBefore(end - holes));
            end -= holes + reusable;
            reusableMax -= reusable;
        }
        return FilePages - end;
    }

    private List<PageRun> FreeAllPending()
    {
        var runs = _pending.Runs();
        foreach (var run in runs)
        {
            _pending.Remove(run);
            _free.Add(run);
        }
        return runs;
    }

    private void BeginTaking(long pagesWanted)
    {
        _extents.Begin(_reusable, pagesWanted);
        _holeExtents.Begin(_holes, Math.Max(0, pagesWanted - _reusable.Count));
    }

    private void LeavePages(PageRun run)
    {
        Invariant.Check(
            _free.CountIn(run) == 0 && _pending.CountIn(run) == 0,
            $"Pages of the {run.Count} from {run.First} on were retired twice, or while they were free.");
        _pending.Add(run);
        _pages.Change(run);
    }

    private void Grow(int pages, FileGrowth grow)
    {
        var first = FilePages;
        // Free pages are left only if a run does not fit into them. Others can still be placed there.
        FilePages = grow(first + pages, first + Math.Max(pages, _wanted - _reusable.Count - _holes.Count));
        Reserve();
        var grown = new PageRun(first, FilePages - first);
        _free.Add(grown);
        _reusable.Add(grown);
        _pages.Change(grown);
        _extents.Add(grown);
    }

    private void Reserve()
    {
        _pages.Reserve(FilePages);
        foreach (var pages in (PageBitmap[])[_free, _pending, _reusable, _holes])
            pages.Reserve(_pages.PagesCovered);
        _births.Reserve(FilePages);
    }
}
