using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// Where the free map is in the file (FORMAT.md, "Free map"): map pages of 15 sections, and the directory that lists them, in two levels if one page cannot.
/// All of them are copied on write. Owned by the <see cref="FreeMap"/>, and used like it.
/// </summary>
internal sealed unsafe class FreeMapPages
{
    /// <summary>Pages of the file whose bits are in one map page.</summary>
    public const int PagesPerMapPage = SectionsPerPage * SectionPages;

    private const int SectionPages = 2048;
    private const int SectionWords = SectionPages / 64;
    private const int SectionsPerPage = 15;
    private const int WordsPerPage = SectionsPerPage * SectionWords;
    private const int EntryBytes = 16;
    private const int EntriesMax = Page.BodyBytes / EntryBytes;

    /// <summary>The map pages, and the directory pages below the topmost one, if the directory has two levels.</summary>
    private readonly Level _maps = new();
    private readonly Level _directories = new();
    private PageRef _top;
    private (PageLink[] Maps, PageLink[] Directories, PageRef Top)? _saved;

    /// <summary>Pages of the file for which the map has bits.</summary>
    public long PagesCovered => (long)_maps.Count * PagesPerMapPage;

    /// <summary>Makes the map large enough for a file of this many pages. New map pages count as changed.</summary>
    public void Reserve(long filePages)
    {
        var maps = (int)((filePages + PagesPerMapPage - 1) / PagesPerMapPage);
        if (maps > _maps.Count)
            Resize(maps);
    }

    /// <summary>Makes the map as small as a file of this many pages allows. Returns the pages that held what it loses.</summary>
    public List<PageRef> Shrink(long filePages)
    {
        var maps = (int)((filePages + PagesPerMapPage - 1) / PagesPerMapPage);
        List<PageRef> left = [.. _maps.From(maps), .. _directories.From(DirectoriesFor(maps))];
        Resize(maps);
        return left;
    }

    /// <summary>Notes that the bits of these pages have changed.</summary>
    public void Change(PageRun run)
    {
        for (var map = run.First / PagesPerMapPage; map * PagesPerMapPage < run.First + run.Count && map < _maps.Count; map++)
            _maps.Changed[map] = true;
    }

    /// <summary>The pages of the map except the topmost page of the directory.</summary>
    public IEnumerable<PageLink> Places() => _maps.Places.Concat(_directories.Places).Where(place => !place.Reference.IsNone);

    /// <summary>Reads the map to which a meta page refers.</summary>
    /// <exception cref="CorruptStoreException">A page of the map is not what was written.</exception>
    public void Load(PageSpace space, MetaPage meta, PageBitmap free, PageBitmap pending)
    {
        _top = meta.FreeDirectory;
        if (_top.IsNone)
            return;
        var top = Resolve(space, meta, new PageLink(_top, meta.FreeDirectoryChecksum), PageType.FreeDirectory);
        ReadEntries(top, (_directories.Count > 0 ? _directories : _maps).Places);
        for (var i = 0; i < _directories.Count; i++)
            ReadEntries(Resolve(space, meta, _directories.Places[i], PageType.FreeDirectory), Listed(i));
        for (var i = 0; i < _maps.Count; i++)
            ReadSections(Resolve(space, meta, _maps.Places[i], PageType.FreeSections), (long)i * WordsPerPage, free, pending);
        _maps.Settle();
        _directories.Settle();
    }

    /// <summary>Begins the map of the next checkpoint.</summary>
    public void BeginNext() => _saved = ([.. _maps.Places], [.. _directories.Places], _top);

    /// <summary>Returns to the map before <see cref="BeginNext"/>.</summary>
    public void Restore()
    {
        if (_saved is not { } saved)
            return;
        Resize(saved.Maps.Length);
        saved.Maps.CopyTo(_maps.Places, 0);
        saved.Directories.CopyTo(_directories.Places, 0);
        _top = saved.Top;
        _maps.Settle();
        _directories.Settle();
        _saved = null;
    }

    /// <summary>Places and writes all pages that changed, and returns the link to the directory.</summary>
    /// <param name="writer">Gets the pages.</param>
    /// <param name="etag">The last change in the checkpoint.</param>
    /// <param name="free">The bits.</param>
    /// <param name="pending">The other bits.</param>
    /// <param name="take">Takes a page. This changes the bits.</param>
    /// <param name="leave">Retires the former place of a page. This changes the bits, too.</param>
    public PageLink WriteNext(PageWriter writer, Etag etag, PageBitmap free, PageBitmap pending, Func<long> take, Action<PageRef> leave)
    {
        if (!_top.IsNone)
            leave(_top);
        var top = take();
        // Placing a page changes the map itself, so this repeats, at most once for each map page.
        while (Place(_maps, take, leave))
        {
            for (var map = 0; map < _maps.Count; map++)
            {
                if (_directories.Count > 0 && _maps.NewPlaces[map] != 0)
                    _directories.Changed[map / EntriesMax] = true;
            }
            Place(_directories, take, leave);
        }
        for (var i = 0; i < _maps.Count; i++)
        {
            if (_maps.NewPlaces[i] is not 0 and var number)
                _maps.Places[i] = WriteSections(writer, (long)i * WordsPerPage, number, etag, free, pending);
        }
        for (var i = 0; i < _directories.Count; i++)
        {
            if (_directories.NewPlaces[i] is not 0 and var number)
                _directories.Places[i] = WriteEntries(writer, Listed(i), number, etag);
        }
        var directory = WriteEntries(writer, (_directories.Count > 0 ? _directories : _maps).Places, top, etag);
        _top = directory.Reference;
        _maps.Settle();
        _directories.Settle();
        return directory;
    }

    private static int DirectoriesFor(int maps) => maps <= EntriesMax ? 0 : (maps + EntriesMax - 1) / EntriesMax;

    private static bool Place(Level level, Func<long> take, Action<PageRef> leave)
    {
        var any = false;
        for (var i = 0; i < level.Count; i++)
        {
            if (!level.Changed[i] || level.NewPlaces[i] != 0)
                continue;
            if (!level.Places[i].Reference.IsNone)
                leave(level.Places[i].Reference);
            // Taking a place may make the file grow, and the level with it, so the level's array is read after that.
            var place = take();
            level.NewPlaces[i] = place;
            any = true;
        }
        return any;
    }

    // References in tree pages are validated with the page. These come from other pages.
    private static byte* Resolve(PageSpace space, MetaPage meta, PageLink link, PageType type)
    {
        if (!link.Reference.IsInFile(meta.FilePages))
            throw new CorruptStoreException($"The free map has the invalid reference {link.Reference}.");
        var page = space.Resolve(&link);
        return Page.Type(page) == type
            ? page
            : throw new CorruptStoreException($"The page at {link.Reference} should be of the free map and of type {type}, but has type {Page.Type(page)}.");
    }

    private static void ReadEntries(byte* directory, Span<PageLink> places)
    {
        for (var i = 0; i < places.Length; i++)
            places[i] = *(PageLink*)(directory + Page.HeaderBytes + (i * EntryBytes));
    }

    private static void ReadSections(byte* page, long firstWord, PageBitmap free, PageBitmap pending)
    {
        for (var word = 0; word < WordsPerPage; word++)
        {
            var bits = BitsOf(page, word);
            free.Set(firstWord + word, bits[0]);
            pending.Set(firstWord + word, bits[SectionWords]);
        }
    }

    /// <summary>The free bits of 64 pages; the pending bits are <see cref="SectionWords"/> further on.</summary>
    private static ulong* BitsOf(byte* page, int word) =>
        (ulong*)(page + Page.HeaderBytes) + (word / SectionWords * SectionWords * 2) + (word % SectionWords);

    private static PageLink WriteSections(PageWriter writer, long firstWord, long number, Etag etag, PageBitmap free, PageBitmap pending)
    {
        var page = writer.Next(number);
        Page.Format(page, PageType.FreeSections, default);
        Page.Count(page) = SectionsPerPage;
        for (var word = 0; word < WordsPerPage; word++)
        {
            var bits = BitsOf(page, word);
            bits[0] = free.Words[(int)(firstWord + word)];
            bits[SectionWords] = pending.Words[(int)(firstWord + word)];
        }
        return Finish(page, number, etag);
    }

    private static PageLink WriteEntries(PageWriter writer, ReadOnlySpan<PageLink> places, long number, Etag etag)
    {
        var page = writer.Next(number);
        Page.Format(page, PageType.FreeDirectory, default);
        Page.Count(page) = (ushort)places.Length;
        for (var i = 0; i < places.Length; i++)
            *(PageLink*)(page + Page.HeaderBytes + (i * EntryBytes)) = places[i];
        return Finish(page, number, etag);
    }

    private static PageLink Finish(byte* page, long number, Etag etag)
    {
        Page.Number(page) = (ulong)number;
        Page.SetEtag(page, etag);
        return new PageLink(PageRef.ToFile(number), Page.Checksum(page) = Page.ComputeChecksum(page, Page.Bytes));
    }

    /// <summary>The map pages that a directory page of the second level lists.</summary>
    private Span<PageLink> Listed(int directory) =>
        _maps.Places.AsSpan(directory * EntriesMax, Math.Min(EntriesMax, _maps.Count - (directory * EntriesMax)));

    private void Resize(int maps)
    {
        _maps.Resize(maps);
        _directories.Resize(DirectoriesFor(maps));
    }

    /// <summary>Pages of one kind, in the order of what they describe.</summary>
    private sealed class Level
    {
        /// <summary>Where they are; none for one that was never written.</summary>
        public PageLink[] Places = [];

        public bool[] Changed = [];

        /// <summary>Where the checkpoint in progress writes them; 0 if it does not.</summary>
        public long[] NewPlaces = [];

        public int Count => Places.Length;

        public IEnumerable<PageRef> From(int first) => Places.Skip(first).Select(place => place.Reference).Where(place => !place.IsNone);

        public void Resize(int count)
        {
            var before = Places.Length;
            Array.Resize(ref Places, count);
            Array.Resize(ref Changed, count);
            Array.Resize(ref NewPlaces, count);
            if (count > before)
                Changed.AsSpan(before).Fill(true);
        }

        public void Settle()
        {
            Array.Clear(Changed);
            Array.Clear(NewPlaces);
        }
    }
}
