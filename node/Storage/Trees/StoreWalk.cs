using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The full check of a data file, for tests and tools, and in steps for a file that was received from another replica. It keeps one array of reachable
/// pages and one of pages that are free or retired. Runs on the writer, or on any thread that has the file to itself. An exception other than the
/// documented one is a bug, or comes from a page with an invalid structure.
/// </summary>
internal sealed unsafe class StoreWalk
{
    private readonly PageSpace _space;
    private readonly FreeMap _free;
    private readonly bool[] _inUse;
    private readonly bool[] _isFree;
    private readonly Stack<Place> _path = new();
    private TreeRoot[] _trees = [];
    private bool[] _reached = [];
    private int _tree;
    private long _bytesWalked;

    /// <summary>The level of the tree's leaves, and of those of the set in it that is being visited; 0 before the first one.</summary>
    private int _leafLevel;
    private int _memberLevel;

    /// <summary>Marks the free pages and the retired ones.</summary>
    public StoreWalk(PageSpace space, FreeMap free, List<List<PageRun>> leaving)
    {
        (_space, _free) = (space, free);
        _inUse = new bool[free.FilePages];
        _isFree = new bool[free.FilePages];
        var isLeaving = new bool[free.FilePages];
        foreach (var run in leaving.SelectMany(runs => runs))
            Mark(isLeaving, run, "retired");
        foreach (var run in free.FreeRuns())
            Mark(_isFree, run, "free");
        for (var page = 0; page < isLeaving.Length; page++)
            _isFree[page] |= isLeaving[page];
    }

    /// <summary>Checks that the published trees and the free map reach every page that is neither free nor retired, and no other page.</summary>
    public void CheckPublished(StoreRoot root, MetaPage meta)
    {
        BeginPublished(root.Trees, meta);
        while (!StepPublished(long.MaxValue))
        {
        }
    }

    /// <summary>Begins the same check in steps.</summary>
    public void BeginPublished(TreeRoot[] trees, MetaPage meta)
    {
        Mark(_inUse, new PageRun(0, 2), "meta");
        if (!meta.FreeDirectory.IsNone)
        {
            Touch(new PageLink(meta.FreeDirectory, meta.FreeDirectoryChecksum), _inUse);
            foreach (var sections in _free.MapPages())
                Touch(sections, _inUse);
        }
        Begin(trees, _inUse);
    }

    /// <summary>Bytes of pages read so far.</summary>
    public long BytesWalked => _bytesWalked;

    /// <summary>Reads about this many more bytes. True when everything was checked and is correct.</summary>
    /// <exception cref="CorruptStoreException">The check failed.</exception>
    public bool StepPublished(long bytesMax)
    {
        if (!Step(bytesMax))
            return false;
        for (var page = 0; page < _inUse.Length; page++)
        {
            if (_inUse[page] == _isFree[page])
                throw new CorruptStoreException($"Page {page} is {(_inUse[page] ? "both reachable and free" : "neither reachable nor free")}.");
        }
        return true;
    }

    /// <summary>Checks that no page which these trees reach may be reused.</summary>
    public void CheckProtected(TreeRoot[] trees, string whose)
    {
        var reached = new bool[_inUse.Length];
        WalkTrees(trees, reached);
        foreach (var run in _free.ReusableRuns())
        {
            for (var page = run.First; page < run.First + run.Count; page++)
            {
                if (reached[page])
                    throw new CorruptStoreException($"Page {page} may be reused, but the {whose} still reaches it.");
            }
        }
    }

    private static void Mark(bool[] pages, PageRun run, string what)
    {
        if (run.First < 0 || run.First > pages.Length - run.Count)
            throw new CorruptStoreException($"The {run.Count} {what} pages from {run.First} on are not within the {pages.Length} pages of the file.");
        for (var page = run.First; page < run.First + run.Count; page++)
        {
            if (pages[page])
                throw new CorruptStoreException($"Page {page} is marked as {what} twice.");
            pages[page] = true;
        }
    }

    private void WalkTrees(TreeRoot[] trees, bool[] reached)
    {
        Begin(trees, reached);
        while (!Step(long.MaxValue))
        {
        }
    }

    private void Begin(TreeRoot[] trees, bool[] reached) => (_trees, _reached, _tree) = (trees, reached, 0);

    /// <summary>Continues until enough bytes were read; true when all trees are done.</summary>
    private bool Step(long bytesMax)
    {
        var stop = bytesMax > long.MaxValue - _bytesWalked ? long.MaxValue : _bytesWalked + bytesMax;
        while (_tree < _trees.Length)
        {
            if (_path.Count == 0 && !EnterTree())
                continue;
            if (_bytesWalked >= stop)
                return false;
            GoOn();
        }
        return true;
    }

    /// <summary>False if the tree is empty.</summary>
    private bool EnterTree()
    {
        var root = _trees[_tree];
        _leafLevel = 0;
        if (!root.Link.Reference.IsNone)
        {
            Enter(root.Link, null, null);
            return true;
        }
        EndTree(0);
        return false;
    }

    private void EndTree(ulong keys)
    {
        if (keys != _trees[_tree].Count)
            throw new CorruptStoreException($"Tree {_tree} has {keys} keys, but its root records {_trees[_tree].Count}.");
        _tree++;
    }

    /// <summary>Handles the next child, large value or set of the page at the end of the path, or returns to its parent.</summary>
    private void GoOn()
    {
        var at = _path.Peek();
        if (at.Next == at.Count)
        {
            _ = _path.Pop();
            if (at.Members is { } members && members != at.Keys)
                throw new CorruptStoreException($"A set has {at.Keys} members, but its entry records {members}.");
            if (at.Members is null && _path.TryPeek(out var parent))
                parent.Keys += at.Keys;
            else if (at.Members is null)
                EndTree(at.Keys);
            return;
        }
        var index = at.Next++;
        if (at.IsLeaf)
            FollowEntry(at, index);
        else
            Enter(
                *TreePage.Child(at.Page, index), index == 0 ? at.Lower : at.Separators[index], index + 1 < at.Count ? at.Separators[index + 1] : at.Upper,
                summary: TreePage.Subtree(at.Page, index)->Summary);
    }

    /// <summary>Checks the set of an entry, and goes on with what the entry refers to.</summary>
    private void FollowEntry(Place leaf, int index)
    {
        var link = TreePage.Reference(leaf.Page, index);
        var hasTree = TreePage.HasTree(leaf.Page, index);
        if (link != null && (leaf.IsInSet || hasTree != leaf.HasSets))
            throw new CorruptStoreException($"An entry of tree {_tree} refers to pages in a way that its entries do not.");
        if (leaf.HasSets)
        {
            var set = new SetValue(TreePage.Value(_space, leaf.Page, index));
            set.Check(hasTree);
            if (hasTree)
            {
                _memberLevel = 0;
                Enter(*link, null, null, set.Count);
            }
        }
        else if (link != null)
        {
            Touch(*link, _reached);
            _space.ResolveRun(link, TreePage.OverflowLength(link));
        }
        if (link != null)
            CheckCompressed(Page.Cell(leaf.Page, index));
    }

    private void CheckCompressed(byte* cell)
    {
        if (TreePage.IsCompressed(cell) && (_tree != (int)TreeId.Kv || TreePage.TryDecompress(_space, cell) is null))
            throw _space.Undecodable(cell);
    }

    private void Touch(PageLink link, bool[] reached)
    {
        var pages = 1;
        if (!link.Reference.IsScratch)
        {
            pages = _space.CheckPage(link.Reference, link.Checksum);
            Mark(reached, new PageRun(link.Reference.Number, pages), "reachable");
        }
        _bytesWalked += (long)pages * Page.Bytes;
    }

    /// <summary>Checks a page and goes on with what it refers to.</summary>
    /// <param name="link">The page.</param>
    /// <param name="lower">No key is less; null at the left edge.</param>
    /// <param name="upper">All keys are less; null at the right edge.</param>
    /// <param name="members">For the topmost page of a set's tree, how many members it must have.</param>
    /// <param name="summary">What the parent records of it, if it is in the file.</param>
    private void Enter(PageLink link, byte[]? lower, byte[]? upper, ulong? members = null, SubtreeSummary? summary = null)
    {
        var isInSet = members is not null || (_path.TryPeek(out var parent) && parent.IsInSet);
        Touch(link, _reached);
        var page = link.Reference.IsDelta ? Fold(link.Reference.Memory, out var fold) : WholeOf(link.Reference, out fold);
        var isLeaf = Page.Type(page) == PageType.Leaf;
        if ((!isLeaf && (Page.Type(page) != PageType.Branch || Page.Count(page) == 0)) || _path.Count == 2 * PageStructure.DepthMax)
            throw new CorruptStoreException($"The page at {link.Reference} is not valid at level {_path.Count + 1} of a tree: "
                + $"it has type {Page.Type(page)} and {Page.Count(page)} entries.");
        if (isLeaf)
            CheckLevel(ref isInSet ? ref _memberLevel : ref _leafLevel, link);
        // Each level is compared with the one below it, and the lowest with its keys.
        if (summary is { } recorded && !link.Reference.IsScratch && SubtreeSummary.Of(page) is var found && found != recorded)
            throw new CorruptStoreException($"The page at {link.Reference} has {found}, but its parent records {recorded}.");
        var first = isLeaf ? 0 : 1;
        var keys = new byte[Page.Count(page)][];
        for (var i = first; i < keys.Length; i++)
        {
            var key = new byte[TreePage.KeyLength(page, i)];
            TreePage.CopyKey(page, i, key);
            keys[i] = key;
            var before = i > first ? keys[i - 1] : null;
            if ((before is not null && before.AsSpan().SequenceCompareTo(key) >= 0)
                || (lower is not null && key.AsSpan().SequenceCompareTo(lower) < 0) || (upper is not null && key.AsSpan().SequenceCompareTo(upper) >= 0))
                throw new CorruptStoreException($"Key {i} of the page at {link.Reference} is out of order.");
        }
        var entered = new Place(page, isLeaf, keys.Length, lower, upper, isLeaf ? [] : keys)
        {
            Keys = isLeaf ? (ulong)keys.Length : 0,
            Members = members,
            IsInSet = isInSet,
            HasSets = isLeaf && !isInSet && _tree == (int)TreeId.Sets,
            Fold = fold,
        };
        if (link.Reference.IsDelta && keys.Length != DeltaPage.Keys(link.Reference.Memory))
            throw new CorruptStoreException($"The delta at {link.Reference} has {keys.Length} keys, but records {DeltaPage.Keys(link.Reference.Memory)}.");
        for (var i = 0; isLeaf && i < keys.Length; i++)
        {
            if (TreePage.Reference(page, i) == null)
                CheckCompressed(Page.Cell(page, i));
        }
        // In a leaf only sets and cells that refer to other pages need another look.
        if (!entered.HasSets && !TreePage.HasReferences(page))
            entered.Next = entered.Count;
        _path.Push(entered);
    }

    private byte* WholeOf(PageRef reference, out byte[]? fold)
    {
        fold = null;
        return _space.Locate(reference);
    }

    /// <summary>The whole leaf of a delta. Its base is reached by it, and by nothing else.</summary>
    private byte* Fold(byte* delta, out byte[]? fold)
    {
        var link = DeltaPage.Base(delta);
        Touch(link, _reached);
        fold = GC.AllocateUninitializedArray<byte>(Page.Bytes, pinned: true);
        fixed (byte* page = fold)
        {
            DeltaPage.Fold(page, delta, _space.Locate(link.Reference));
            return page;
        }
    }

    /// <summary>
    /// All leaves of a tree are on one level. Whoever removes a part of it knows by that which pages are branches, and does not read the others.
    /// </summary>
    private void CheckLevel(ref int expected, PageLink leaf)
    {
        var level = _path.Count + 1;
        if (expected == 0)
            expected = level;
        if (level != expected)
            throw new CorruptStoreException($"The leaf at {leaf.Reference} is at level {level} of a tree, and another one at level {expected}.");
    }

    /// <summary>A page on the path from a root to the current position.</summary>
    private sealed class Place(byte* page, bool isLeaf, int count, byte[]? lower, byte[]? upper, byte[][] separators)
    {
        public byte* Page { get; } = page;

        public bool IsLeaf { get; } = isLeaf;

        public int Count { get; } = count;

        public byte[]? Lower { get; } = lower;

        public byte[]? Upper { get; } = upper;

        public byte[][] Separators { get; } = separators;

        /// <summary>Keeps the memory of a delta's whole leaf alive.</summary>
        public byte[]? Fold { get; init; }

        /// <summary>Index of the next entry.</summary>
        public int Next { get; set; }

        /// <summary>For the topmost page of a set's tree, how many members it must have.</summary>
        public ulong? Members { get; init; }

        /// <summary>Whether the page is in the tree of a set.</summary>
        public bool IsInSet { get; init; }

        /// <summary>Whether its entries are sets.</summary>
        public bool HasSets { get; init; }

        /// <summary>Keys in it and below it that have been visited. The members of sets are not counted among the keys of their leaf.</summary>
        public ulong Keys { get; set; }
    }
}
