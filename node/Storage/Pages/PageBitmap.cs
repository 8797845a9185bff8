using System.Numerics;

namespace KvCluster.Storage.Pages;

/// <summary>
/// A set of pages of the file: one bit per page, and for each section of 2,048 pages the number of its bits that are set, so that a scan skips empty sections
/// and takes full ones whole. Changing bits allocates nothing. Not locked; whoever owns the <see cref="FreeMap"/> owns its bitmaps.
/// </summary>
internal sealed class PageBitmap
{
    private const int SectionPages = 2048;
    private const int WordPages = 64;
    private const int SectionWords = SectionPages / WordPages;
    private ulong[] _words = [];
    private ushort[] _counts = [];

    /// <summary>Number of pages in the set.</summary>
    public long Count { get; private set; }

    /// <summary>The bits, the lowest bit of the first word for page 0.</summary>
    public ReadOnlySpan<ulong> Words => _words;

    /// <summary>Makes space for this many pages.</summary>
    public void Reserve(long pages)
    {
        var sections = (int)((pages + SectionPages - 1) / SectionPages);
        if (sections <= _counts.Length)
            return;
        // A large file grows often, each time by little.
        sections += sections / 8;
        Array.Resize(ref _counts, sections);
        Array.Resize(ref _words, sections * SectionWords);
    }

    /// <summary>Whether a page is in the set.</summary>
    public bool Has(long page) => (_words[page / WordPages] & (1ul << (int)(page % WordPages))) != 0;

    /// <summary>How many pages of a run are in the set.</summary>
    public long CountIn(PageRun run)
    {
        var count = 0L;
        for (var page = run.First; page < run.First + run.Count;)
        {
            var mask = MaskOf(run, page, out var next);
            count += BitOperations.PopCount(_words[page / WordPages] & mask);
            page = next;
        }
        return count;
    }

    /// <summary>Adds a run of pages; those that are in the set already remain.</summary>
    public void Add(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count;)
        {
            var mask = MaskOf(run, page, out var next);
            Set(page / WordPages, _words[page / WordPages] | mask);
            page = next;
        }
    }

    /// <summary>Removes a run of pages, as far as they are in the set.</summary>
    public void Remove(PageRun run)
    {
        for (var page = run.First; page < run.First + run.Count;)
        {
            var mask = MaskOf(run, page, out var next);
            Set(page / WordPages, _words[page / WordPages] & ~mask);
            page = next;
        }
    }

    /// <summary>Sets a word of 64 pages.</summary>
    public void Set(long word, ulong bits)
    {
        var change = BitOperations.PopCount(bits) - BitOperations.PopCount(_words[word]);
        _words[word] = bits;
        _counts[word / SectionWords] = (ushort)(_counts[word / SectionWords] + change);
        Count += change;
    }

    /// <summary>Makes this set equal to another one.</summary>
    public void CopyFrom(PageBitmap other)
    {
        if (_counts.Length < other._counts.Length)
            (_counts, _words) = (new ushort[other._counts.Length], new ulong[other._words.Length]);
        other._words.CopyTo(_words, 0);
        other._counts.CopyTo(_counts, 0);
        _words.AsSpan(other._words.Length).Clear();
        _counts.AsSpan(other._counts.Length).Clear();
        Count = other.Count;
    }

    /// <summary>The number of pages in the set directly before a page.</summary>
    public long CountBefore(long page)
    {
        var first = page;
        while (first > 0)
        {
            if (first % SectionPages == 0 && _counts[(first / SectionPages) - 1] == SectionPages)
            {
                first -= SectionPages;
                continue;
            }
            if (!Has(first - 1))
                break;
            first--;
        }
        return page - first;
    }

    /// <summary>The set as runs of pages, in the order of the file.</summary>
    public List<PageRun> Runs(long countMin = 1)
    {
        var runs = new List<PageRun>();
        CollectRuns(runs, countMin);
        return runs;
    }

    /// <summary>Adds the runs of at least this length to a list, in the order of the file.</summary>
    /// <param name="runs">The list.</param>
    /// <param name="countMin">The least length, in pages.</param>
    /// <param name="from">Where to begin: a page that is the first of a section.</param>
    /// <param name="end">Where to end, likewise, or beyond the last page. A run is split there.</param>
    public void CollectRuns(List<PageRun> runs, long countMin = 1, long from = 0, long end = long.MaxValue)
    {
        long first = 0, count = 0;
        for (var section = (int)(from / SectionPages); section < Math.Min(_counts.Length, end / SectionPages); section++)
        {
            var start = (long)section * SectionPages;
            if (_counts[section] == 0)
                continue;
            if (_counts[section] == SectionPages)
                Extend(start, SectionPages);
            else
                ScanSection(start);
        }
        if (count >= countMin)
            runs.Add(new PageRun(first, count));

        void ScanSection(long start)
        {
            var words = _words.AsSpan((int)(start / WordPages), SectionWords);
            // Vectorized skip of empty words.
            for (var word = words.IndexOfAnyExcept(0ul); word >= 0 && word < SectionWords; word++)
            {
                if (words[word] == 0)
                {
                    var skipped = words[word..].IndexOfAnyExcept(0ul);
                    if (skipped < 0)
                        break;
                    word += skipped;
                }
                for (var rest = words[word]; rest != 0;)
                {
                    var from = BitOperations.TrailingZeroCount(rest);
                    var length = BitOperations.TrailingZeroCount(~(rest >> from));
                    Extend(start + (word * WordPages) + from, length);
                    rest &= from + length >= WordPages ? 0 : ulong.MaxValue << (from + length);
                }
            }
        }

        void Extend(long page, int length)
        {
            if (count > 0 && first + count == page)
            {
                count += length;
                return;
            }
            if (count >= countMin)
                runs.Add(new PageRun(first, count));
            (first, count) = (page, length);
        }
    }

    /// <summary>The bits of a run in the word of one of its pages, and the first page after that word.</summary>
    private static ulong MaskOf(PageRun run, long page, out long next)
    {
        var from = (int)(page % WordPages);
        var length = (int)Math.Min(WordPages - from, run.First + run.Count - page);
        next = page + length;
        return (length == WordPages ? ulong.MaxValue : (1ul << length) - 1) << from;
    }
}
