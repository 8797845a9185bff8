namespace KvCluster.Node.Watching;

/// <summary>
/// Finds the watchers of a key among many: the ranges are a balanced tree by their first keys, each node of which knows where the last range below it ends. So
/// an event costs the logarithm of the number of ranges and what it finds. Ranges added since the tree was built are compared one by one, and are few. Not
/// locked: <see cref="WatchHub"/> holds its lock.
/// </summary>
internal sealed class RangeIndex
{
    /// <summary>The tree is built anew when more ranges than this, or than a part of it, were added or became empty.</summary>
    private const int ChangesMax = 32;
    private const int ChangesPart = 8;

    private readonly Dictionary<WatchedRange, Group> _groups = [];
    private readonly List<Group> _added = [];
    private Group[] _sorted = [];

    /// <summary>For each node of the tree the greatest end below it; empty: one of them has no end.</summary>
    private ReadOnlyMemory<byte>[] _endLast = [];
    private int _emptied;

    /// <summary>Adds a watcher of a range.</summary>
    public void Add(Watcher watcher)
    {
        if (!_groups.TryGetValue(watcher.Range, out var group))
        {
            group = new Group(watcher.Range);
            _groups.Add(watcher.Range, group);
            _added.Add(group);
        }
        group.Add(watcher);
        BuildIfDue();
    }

    /// <summary>Removes it.</summary>
    public void Remove(Watcher watcher)
    {
        var group = watcher.Group!;
        group.Remove(watcher);
        if (group.Watchers.Count > 0)
            return;
        _groups.Remove(group.Range);
        if (!_added.Remove(group))
            _emptied++;
        BuildIfDue();
    }

    /// <summary>Finds the groups of watchers whose ranges have an event. The list is cleared first.</summary>
    public void Find(in WatchEvent happened, List<Group> found)
    {
        found.Clear();
        foreach (var group in _added)
        {
            if (happened.IsIn(group.Range))
                found.Add(group);
        }
        Find(happened, 0, _sorted.Length, found);
    }

    // The tree of a part of the sorted ranges has its root in the middle.
    private void Find(in WatchEvent happened, int from, int to, List<Group> found)
    {
        while (from < to)
        {
            var middle = (from + to) / 2;
            if (!WatchedRange.EndsAfter(_endLast[middle].Span, happened.Key.Span))
                return;
            Find(happened, from, middle, found);
            var group = _sorted[middle];
            if (!BeginsBefore(group.Range.Lower.Span, happened))
                return;
            if (group.Watchers.Count > 0 && WatchedRange.EndsAfter(group.Range.Upper.Span, happened.Key.Span))
                found.Add(group);
            from = middle + 1;
        }
    }

    private static bool BeginsBefore(ReadOnlySpan<byte> lower, in WatchEvent happened) => happened.Kind == V1.EventKind.DeleteRange
        ? WatchedRange.EndsAfter(happened.End.Span, lower)
        : lower.SequenceCompareTo(happened.Key.Span) <= 0;

    private void BuildIfDue()
    {
        if (_added.Count + _emptied <= ChangesMax + (_sorted.Length / ChangesPart))
            return;
        _sorted = [.. _groups.Values];
        Array.Sort(_sorted, static (left, right) => left.Range.Lower.Span.SequenceCompareTo(right.Range.Lower.Span));
        _endLast = new ReadOnlyMemory<byte>[_sorted.Length];
        _added.Clear();
        _emptied = 0;
        NoteEnds(0, _sorted.Length);
    }

    private void NoteEnds(int from, int to)
    {
        if (from >= to)
            return;
        var middle = (from + to) / 2;
        NoteEnds(from, middle);
        NoteEnds(middle + 1, to);
        var last = _sorted[middle].Range.Upper;
        if (from < middle)
            last = Later(last, _endLast[(from + middle) / 2]);
        if (middle + 1 < to)
            last = Later(last, _endLast[(middle + 1 + to) / 2]);
        _endLast[middle] = last;
    }

    private static ReadOnlyMemory<byte> Later(ReadOnlyMemory<byte> left, ReadOnlyMemory<byte> right) =>
        left.IsEmpty || (!right.IsEmpty && left.Span.SequenceCompareTo(right.Span) >= 0) ? left : right;

    /// <summary>The watchers of one range.</summary>
    internal sealed class Group(WatchedRange range)
    {
        private readonly List<Watcher> _watchers = [];

        public WatchedRange Range => range;

        public IReadOnlyList<Watcher> Watchers => _watchers;

        /// <summary>How many of them want to know what was replaced.</summary>
        public int PreviousCount { get; private set; }

        public void Add(Watcher watcher)
        {
            (watcher.Group, watcher.PlaceInGroup) = (this, _watchers.Count);
            _watchers.Add(watcher);
            PreviousCount += watcher.WithPrevious ? 1 : 0;
        }

        public void Remove(Watcher watcher)
        {
            // The last watcher takes the free place.
            _watchers[watcher.PlaceInGroup] = _watchers[^1];
            _watchers[watcher.PlaceInGroup].PlaceInGroup = watcher.PlaceInGroup;
            _watchers.RemoveAt(_watchers.Count - 1);
            PreviousCount -= watcher.WithPrevious ? 1 : 0;
        }
    }
}
