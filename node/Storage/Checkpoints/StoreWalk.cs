namespace KvCluster.Storage.Pages;

/// <summary>
/// The full check of a data file, for tests and tools: one bit array of what is reachable, one of what is free or on its way there. On the writer.
/// </summary>
internal sealed unsafe class StoreWalk
{
    private readonly PageSpace _space;
    private readonly FreeMap _free;
    private readonly bool[] _inUse;
    private readonly bool[] _isFree;

    /// <summary>Notes free pages and those that leave.</summary>
    public StoreWalk(PageSpace space, FreeMap free, List<List<PageRun>> leaving)
    {
        (_space, _free) = (space, free);
        _inUse = new bool[free.FilePages];
        _isFree = new bool[free.FilePages];
        var isLeaving = new bool[free.FilePages];
        foreach (var run in leaving.SelectMany(runs => runs))
            Mark(isLeaving, run, "left");
        foreach (var run in free.FreeRuns())
            Mark(_isFree, run, "free");
        for (var page = 0; page < isLeaving.Length; page++)
            _isFree[page] |= isLeaving[page];
    }

    /// <summary>The published trees and the map reach all pages that are neither free nor leaving, and no other.</summary>
    public void CheckPublished(StoreRoot root, MetaPage meta)
    {
        Mark(_inUse, new PageRun(0, 2), "meta");
        if (meta.FreeDirectory != 0)
        {
            Touch(meta.FreeDirectory, meta.FreeDirectoryChecksum, _inUse);
            foreach (var (reference, checksum) in _free.SectionPlaces())
                Touch(reference, checksum, _inUse);
        }
        WalkTrees(root.Trees, _inUse);
        for (var page = 0; page < _inUse.Length; page++)
        {
            if (_inUse[page] == _isFree[page])
                throw new CorruptStoreException($"Page {page} is {(_inUse[page] ? "reachable and free" : "neither reachable nor free")}.");
        }
    }

    /// <summary>No page that these trees reach may be reused.</summary>
    public void CheckProtected(TreeRoot[] trees, string whose)
    {
        var reached = new bool[_inUse.Length];
        WalkTrees(trees, reached);
        foreach (var run in _free.ReusableRuns())
        {
            for (var page = run.First; page < run.First + run.Count; page++)
            {
                if (reached[page])
                    throw new CorruptStoreException($"Page {page} may be reused, and the {whose} reaches it.");
            }
        }
    }

    private static void Mark(bool[] pages, PageRun run, string what)
    {
        for (var page = run.First; page < run.First + run.Count; page++)
        {
            if (pages[page])
                throw new CorruptStoreException($"Page {page} is {what} twice.");
            pages[page] = true;
        }
    }

    private void WalkTrees(TreeRoot[] trees, bool[] reached)
    {
        for (var i = 0; i < trees.Length; i++)
        {
            var count = trees[i].Reference == 0 ? 0 : Walk(trees[i].Reference, trees[i].Checksum, reached, default, default, depth: 1);
            if (count != trees[i].Count)
                throw new CorruptStoreException($"Tree {i} has {count} keys, and its root says {trees[i].Count}.");
        }
    }

    private void Touch(ulong reference, uint checksum, bool[] reached)
    {
        if (!PageSpace.IsScratch(reference))
            Mark(reached, new PageRun(PageSpace.NumberOf(reference), _space.CheckPage(reference, checksum)), "reachable");
    }

    private ulong Walk(ulong reference, uint checksum, bool[] reached, byte[]? lower, byte[]? upper, int depth)
    {
        Touch(reference, checksum, reached);
        var page = _space.Locate(reference);
        if (Page.Type(page) is not (PageType.Leaf or PageType.Branch) || (Page.Type(page) == PageType.Branch && Page.Count(page) == 0) || depth > PageStructure.DepthMax)
            throw new CorruptStoreException($"The page at {reference:x}, at level {depth} of a tree, has type {Page.Type(page)} and {Page.Count(page)} entries.");
        int count = Page.Count(page), first = Page.Type(page) == PageType.Branch ? 1 : 0;
        var keys = new byte[count + 1][];
        for (var i = first; i < count; i++)
        {
            var key = new byte[Node.KeyLength(page, i)];
            Node.CopyKey(page, i, key);
            keys[i] = key;
            var before = i > first ? keys[i - 1] : null;
            if ((before is not null && before.AsSpan().SequenceCompareTo(key) >= 0)
                || (lower is not null && key.AsSpan().SequenceCompareTo(lower) < 0) || (upper is not null && key.AsSpan().SequenceCompareTo(upper) >= 0))
                throw new CorruptStoreException($"Key {i} of the page at {reference:x} is out of order.");
        }
        if (Page.Type(page) == PageType.Leaf)
        {
            for (var i = 0; i < count; i++)
            {
                if (Node.IsOverflow(page, i, out var child))
                {
                    Touch(*(ulong*)child, *(uint*)(child + sizeof(ulong)), reached);
                    _space.ResolveRun(child, *(uint*)(child - sizeof(uint)));
                }
            }
            return (ulong)count;
        }
        var total = 0ul;
        for (var i = 0; i < count; i++)
        {
            var child = Node.Child(page, i);
            total += Walk(*(ulong*)child, *(uint*)(child + sizeof(ulong)), reached, i == 0 ? lower : keys[i], i + 1 < count ? keys[i + 1] : upper, depth + 1);
        }
        return total;
    }
}
