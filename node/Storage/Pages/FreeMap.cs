using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Which pages of the file are free. The newest checkpoint's map has two bits per page: free, and pending, which means retired since the previous
/// checkpoint, whose meta page still reaches the page. A third bit exists in memory only: reusable, a free page that no snapshot or pin holds. Used by the
/// writer and, between the begin and the finish of a checkpoint, by the checkpoint executor; never by both at once.
/// </summary>
/// <remarks>
/// In the file (FORMAT.md, "Free map") each map page has 15 sections of 2,048 pages, and a directory page lists the map pages. Map pages are copied on
/// write; a checkpoint writes those that changed, and the directory.
/// </remarks>
internal sealed unsafe class FreeMap
{
    private const int SectionPages = 2048;
    private const int SectionWords = SectionPages / 64;
    private const int SectionsPerPage = 15;
    private const int WordsPerPage = SectionsPerPage * SectionWords;
    private const int DirectoryEntryBytes = 16;

    /// <summary>The file grows by a sixteenth, so a sorted load leaves at most the last checkpoint's growth empty.</summary>
    private const int GrowthDivisor = 16;
    private const int GrowthPagesMin = 32;
    private const int GrowthPagesMax = 8192;

    private readonly List<PageRun> _runs = [];
    private readonly PageBirths _births = new(64 * WordsPerPage);
    private ulong[] _free = [];
    private ulong[] _pending = [];
    private ulong[] _reusable = [];

    /// <summary>The map pages.</summary>
    private PageLink[] _places = [];
    private bool[] _changed = [];
    private PageRef _directory;
    private int _run;
    private long _wanted;
    private Saved? _saved;

    /// <summary>Pages of the file, in use or free.</summary>
    public long FilePages { get; private set; } = 2;

    /// <summary>The most pages for which the directory has space.</summary>
    public static long FilePagesMax => (long)(Page.BodyBytes / DirectoryEntryBytes) * WordsPerPage * 64;

    /// <summary>Reads the map to which a meta page refers. All free pages are reusable.</summary>
    /// <exception cref="CorruptStoreException">A page of the map is not what was written.</exception>
    public static FreeMap Load(PageSpace space, MetaPage meta)
    {
        var map = new FreeMap { FilePages = meta.FilePages, _directory = meta.FreeDirectory };
        map.Reserve();
        if (meta.FreeDirectory.IsNone)
            return map;
        var directory = Resolve(space, meta, new PageLink(meta.FreeDirectory, meta.FreeDirectoryChecksum));
        if (Page.Type(directory) != PageType.FreeDirectory)
            throw new CorruptStoreException($"The page at {meta.FreeDirectory} should be the free map's directory, but has type {Page.Type(directory)}.");
        for (var i = 0; i < map._places.Length; i++)
        {
            var entry = directory + Page.HeaderBytes + (i * DirectoryEntryBytes);
            map._places[i] = *(PageLink*)entry;
            if (map._places[i].Reference.IsNone)
                throw new CorruptStoreException($"The free map has no page for the sections from {i * SectionsPerPage} on.");
            var place = Resolve(space, meta, map._places[i]);
            if (Page.Type(place) != PageType.FreeSections)
                throw new CorruptStoreException($"The page at {map._places[i].Reference} should hold sections of the free map, but has type {Page.Type(place)}.");
            var sections = (ulong*)(place + Page.HeaderBytes);
            for (var word = 0; word < WordsPerPage; word++)
            {
                var bits = sections + (word / SectionWords * SectionWords * 2) + (word % SectionWords);
                map._free[(i * WordsPerPage) + word] = bits[0];
                map._pending[(i * WordsPerPage) + word] = bits[SectionWords];
            }
        }
        map._free.CopyTo(map._reusable, 0);
        Array.Clear(map._changed);
        return map;
    }

    // References in tree pages are validated with the page. These come from other pages.
    private static byte* Resolve(PageSpace space, MetaPage meta, PageLink link) => link.Reference.IsInFile(meta.FilePages)
        ? space.Resolve(&link)
        : throw new CorruptStoreException($"The free map has the invalid reference {link.Reference}.");

    /// <summary>The pages that hold the map itself.</summary>
    public IEnumerable<PageLink> SectionPlaces()
    {
        for (var i = 0; i < _places.Length; i++)
        {
            if (!_places[i].Reference.IsNone)
                yield return _places[i];
        }
    }

    /// <summary>Runs of free pages.</summary>
    public List<PageRun> FreeRuns() => PageBits.RunsOf(_free);

    /// <summary>Runs of pages that the next checkpoint may take.</summary>
    public List<PageRun> ReusableRuns() => PageBits.RunsOf(_reusable);

    /// <summary>Runs of pages retired since the checkpoint before the newest.</summary>
    public List<PageRun> PendingRuns() => PageBits.RunsOf(_pending);

    /// <summary>Runs of pages that are neither free nor pending: what the newest checkpoint reaches, including the map and the meta pages.</summary>
    public List<PageRun> UsedRuns()
    {
        var used = new ulong[_free.Length];
        for (var i = 0; i < used.Length; i++)
            used[i] = ~(_free[i] | _pending[i]);
        for (var page = FilePages; page < used.Length * 64L; page++)
            PageBits.Clear(used, page);
        return PageBits.RunsOf(used);
    }

    /// <summary>Makes pages reusable that no meta page, snapshot, pin or root reaches any more.</summary>
    public void AllowReuse(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count; page++)
        {
            Invariant.Check(PageBits.IsSet(_free, page) && !PageBits.IsSet(_reusable, page), $"Page {page} was released for reuse twice, or while in use.");
            PageBits.Set(_reusable, page);
        }
    }

    /// <summary>From when on the content of a page may be reached.</summary>
    public PageBirth BornOf(long page) => _births.Of(page);

    /// <summary>Begins the map of the next checkpoint: pages that were pending become free in it, and pages retired since then become pending.</summary>
    /// <param name="left">Pages that the newest checkpoint reaches and the new one does not.</param>
    /// <param name="pagesWanted">About how many pages will be taken.</param>
    /// <param name="born">From when on the pages that are placed may be reached.</param>
    public void BeginNext(List<PageRun> left, long pagesWanted, PageBirth born)
    {
        _births.Begin(born);
        _saved = new Saved(FilePages, [.. _free], [.. _pending], [.. _reusable], [.. _places], _directory);
        for (var i = 0; i < _free.Length; i++)
        {
            if (_pending[i] == 0)
                continue;
            _free[i] |= _pending[i];
            _pending[i] = 0;
            _changed[i / WordsPerPage] = true;
        }
        foreach (var run in left)
            LeavePages(run);
        _runs.Clear();
        _runs.AddRange(PageBits.RunsOf(_reusable));
        _runs.Sort(static (one, other) => one.Count != other.Count ? other.Count.CompareTo(one.Count) : one.First.CompareTo(other.First));
        (_run, _wanted) = (0, pagesWanted);
    }

    /// <summary>Takes the next pages for a checkpoint from the longest run. The file grows when no run is long enough.</summary>
    public long Take(int pages, FileGrowth grow)
    {
        _wanted -= pages;
        while (_run < _runs.Count && _runs[_run].Count == 0)
            _run++;
        for (var i = _run; i < Math.Min(_run + 2, _runs.Count); i++)
        {
            if (_runs[i].Count >= pages)
                return TakeFrom(i, pages);
        }
        Grow(pages, grow);
        return TakeFrom(_run, pages);
    }

    /// <summary>Places and writes each map page that changed, and the directory, whose reference and checksum it returns.</summary>
    public void WriteNext(RunWriter writer, FileGrowth grow, UInt128 etag, out PageRef directory, out uint directoryChecksum)
    {
        if (!_directory.IsNone)
            LeavePages(new PageRun(_directory.Number, 1));
        var directoryNumber = Take(1, grow);
        // Placing a map page changes the map itself, so this repeats, at most once for each map page.
        var placed = new List<(int Index, long Number)>();
        for (var again = true; again;)
        {
            again = false;
            for (var i = 0; i < _places.Length; i++)
            {
                if (!_changed[i] || placed.Exists(entry => entry.Index == i))
                    continue;
                if (!_places[i].Reference.IsNone)
                    LeavePages(new PageRun(_places[i].Reference.Number, 1));
                placed.Add((i, Take(1, grow)));
                again = true;
            }
        }
        foreach (var (index, number) in placed)
            _places[index] = new PageLink(PageRef.ToFile(number), WriteSections(writer, index, number, etag));
        var page = writer.Next(directoryNumber);
        Page.Format(page, PageType.FreeDirectory, default);
        Page.Count(page) = (ushort)_places.Length;
        for (var i = 0; i < _places.Length; i++)
        {
            var entry = page + Page.HeaderBytes + (i * DirectoryEntryBytes);
            *(PageLink*)entry = _places[i];
        }
        directoryChecksum = Finish(page, directoryNumber, etag);
        directory = _directory = PageRef.ToFile(directoryNumber);
        Array.Clear(_changed);
    }

    /// <summary>Keeps the new map after the checkpoint has finished.</summary>
    public void Keep() => _saved = null;

    /// <summary>Restores the previous map after the checkpoint failed before its meta page. The file may stay longer.</summary>
    public void Restore()
    {
        if (_saved is null)
            return;
        (FilePages, _free, _pending, _reusable, _places, _directory) =
            (_saved.FilePages, _saved.Free, _saved.Pending, _saved.Reusable, _saved.Places, _saved.Directory);
        _changed = new bool[_places.Length];
        _saved = null;
    }

    private static uint Finish(byte* page, long number, UInt128 etag)
    {
        Page.Number(page) = (ulong)number;
        Page.SetEtag(page, etag);
        return Page.Checksum(page) = Page.ComputeChecksum(page, Page.Bytes);
    }

    private uint WriteSections(RunWriter writer, int index, long number, UInt128 etag)
    {
        var page = writer.Next(number);
        Page.Format(page, PageType.FreeSections, default);
        Page.Count(page) = SectionsPerPage;
        var sections = (ulong*)(page + Page.HeaderBytes);
        for (var word = 0; word < WordsPerPage; word++)
        {
            var place = sections + (word / SectionWords * SectionWords * 2) + (word % SectionWords);
            place[0] = _free[(index * WordsPerPage) + word];
            place[SectionWords] = _pending[(index * WordsPerPage) + word];
        }
        return Finish(page, number, etag);
    }

    private long TakeFrom(int index, int pages)
    {
        var run = _runs[index];
        _runs[index] = new PageRun(run.First + pages, run.Count - pages);
        for (var page = run.First; page < run.First + pages; page++)
        {
            PageBits.Clear(_free, page);
            PageBits.Clear(_reusable, page);
            _changed[page / 64 / WordsPerPage] = true;
            _births.Place(page);
        }
        return run.First;
    }

    private void LeavePages(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count; page++)
        {
            Invariant.Check(!PageBits.IsSet(_free, page) && !PageBits.IsSet(_pending, page), $"Page {page} was retired twice, or while it was free.");
            PageBits.Set(_pending, page);
            _changed[page / 64 / WordsPerPage] = true;
        }
    }

    private void Grow(int pages, FileGrowth grow)
    {
        var first = FilePages;
        // A single page finds no space only when no free page is left, so the file grows by everything that is still wanted. For a long run the other free
        // pages can still be used.
        var needed = first + (pages == 1 ? Math.Max(pages, _wanted + pages) : pages);
        FilePages = grow(needed, Math.Max(needed, first + Math.Clamp(first / GrowthDivisor, GrowthPagesMin, GrowthPagesMax)));
        Reserve();
        for (var page = first; page < FilePages; page++)
        {
            PageBits.Set(_free, page);
            PageBits.Set(_reusable, page);
            _changed[page / 64 / WordsPerPage] = true;
        }
        _runs.Insert(_run, new PageRun(first, FilePages - first));
    }

    /// <summary>Makes the arrays large enough for the file's pages. New map pages count as changed.</summary>
    private void Reserve()
    {
        var mapPages = (int)((FilePages + (WordsPerPage * 64) - 1) / (WordsPerPage * 64));
        if (mapPages <= _places.Length)
            return;
        var before = _places.Length;
        Array.Resize(ref _free, mapPages * WordsPerPage);
        Array.Resize(ref _pending, mapPages * WordsPerPage);
        Array.Resize(ref _reusable, mapPages * WordsPerPage);
        Array.Resize(ref _places, mapPages);
        Array.Resize(ref _changed, mapPages);
        _births.Reserve(mapPages);
        _changed.AsSpan(before).Fill(true);
    }

    private sealed record Saved(
        long FilePages, ulong[] Free, ulong[] Pending, ulong[] Reusable, PageLink[] Places, PageRef Directory);
}
