namespace KvCluster.Storage.Pages;

/// <summary>
/// The free space from which one checkpoint takes its pages. Single pages come from the smallest fragments, which nothing else could use, and runs from the
/// longest extents; both go on where they stopped as long as they can, so that neighbours in a tree become neighbours in the file. If more is free than is
/// wanted, only the front of the file is used, so that its end becomes free in time. Used like the <see cref="FreeMap"/> that owns it.
/// </summary>
internal sealed class FreeExtents
{
    private static readonly Comparer<PageRun> ByCount =
        Comparer<PageRun>.Create(static (one, other) => one.Count != other.Count ? one.Count.CompareTo(other.Count) : one.First.CompareTo(other.First));

    /// <summary>Extents that nothing was taken from yet, from <see cref="_shortest"/> to <see cref="_longest"/> (exclusive); shorter ones first.</summary>
    private readonly List<PageRun> _extents = [];

    /// <summary>
    /// What is left of extents in which a run did not fit any more, and extents at the back of the file if they are needed, the longest first.
    /// </summary>
    private readonly PriorityQueue<PageRun, long> _remainders = new();
    private int _shortest;
    private int _longest;

    /// <summary>The extents from here on are used only when those before them are not enough.</summary>
    private int _back;
    private PageRun _single;
    private PageRun _run;

    /// <summary>Begins anew with the pages of a set, of which about this many will be taken.</summary>
    public void Begin(PageBitmap pages, long wanted)
    {
        _extents.Clear();
        _remainders.Clear();
        (_single, _run) = (default, default);
        pages.CollectRuns(_extents);
        _back = 0;
        // Collects twice as many pages as are wanted, so that there is a choice.
        for (var front = 0L; _back < _extents.Count && front < 2 * wanted; _back++)
            front += _extents[_back].Count;
        _extents.Sort(0, _back, ByCount);
        (_shortest, _longest) = (0, _back);
    }

    /// <summary>Adds the pages by which the file has grown. The next take continues there.</summary>
    public void Add(PageRun grown)
    {
        Keep(_run);
        _run = grown;
    }

    /// <summary>Takes consecutive pages; false if no extent is long enough.</summary>
    public bool TryTake(int pages, out long first)
    {
        if (TryTakeInFront(pages, out first))
            return true;
        if (_back == _extents.Count)
            return false;
        for (; _back < _extents.Count; _back++)
            Keep(_extents[_back]);
        return TryTakeInFront(pages, out first);
    }

    private bool TryTakeInFront(int pages, out long first)
    {
        ref var from = ref pages == 1 ? ref SingleExtent() : ref RunExtent(pages);
        first = from.First;
        if (from.Count < pages)
            return false;
        from = new PageRun(from.First + pages, from.Count - pages);
        return true;
    }

    private ref PageRun SingleExtent()
    {
        if (_single.Count == 0)
        {
            if (_shortest < _longest)
                _single = _extents[_shortest++];
            else if (_remainders.TryDequeue(out var remainder, out _))
                _single = remainder;
            else
                return ref _run;
        }
        return ref _single;
    }

    private ref PageRun RunExtent(int pages)
    {
        if (_run.Count >= pages)
            return ref _run;
        var longest = _shortest < _longest ? _extents[_longest - 1].Count : 0;
        if (_remainders.TryPeek(out var remainder, out _) && remainder.Count >= Math.Max(longest, pages))
        {
            Keep(_run);
            _run = _remainders.Dequeue();
        }
        else if (longest >= pages)
        {
            Keep(_run);
            _run = _extents[--_longest];
        }
        else if (_single.Count >= pages)
        {
            return ref _single;
        }
        return ref _run;
    }

    private void Keep(PageRun remainder)
    {
        if (remainder.Count > 0)
            _remainders.Enqueue(remainder, -remainder.Count);
    }
}
