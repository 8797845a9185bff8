using System.Buffers;
using System.Runtime.CompilerServices;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Iterates over a tree's keys in order, in both directions, within bounds. Used by one thread at a time while its snapshot is open. It starts outside the
/// keys: <see cref="MoveNext"/> goes to the first one, <see cref="MovePrevious"/> to the last.
/// </summary>
internal sealed unsafe class Cursor : IDisposable
{
    private readonly PageSpace _space;
    private readonly TreeRoot _root;
    private readonly nint[] _path = new nint[PageStructure.DepthMax];
    private readonly int[] _index = new int[PageStructure.DepthMax];
    private readonly byte[] _lower;
    private readonly byte[] _upper;
    private byte[] _key = ArrayPool<byte>.Shared.Rent(Page.KeyBytesMax);
    private byte* _leaf;
    private ushort* _slots;
    private byte* _ahead;
    private LeafReadAhead _readAhead;
    private int _prefixLength;
    private int _depth;
    private int _at;
    private int _first;
    private int _end;

    internal Cursor(PageSpace space, TreeRoot root, ReadOnlySpan<byte> lower, ReadOnlySpan<byte> upper)
    {
        (_space, _root) = (space, root);
        (_lower, _upper) = (lower.ToArray(), upper.ToArray());
    }

    /// <summary>The current key, in a buffer of the cursor. Valid until the cursor moves.</summary>
    public ReadOnlySpan<byte> Key
    {
        get
        {
            CheckPosition();
            return _key.AsSpan(0, _prefixLength + TreePage.CopyLeafSuffix(_leaf + _slots[_at], Page.Heads(_leaf)[_at], _key.AsSpan(_prefixLength)));
        }
    }

    /// <summary>The current value, in place. Valid until the snapshot is disposed.</summary>
    public ReadOnlySpan<byte> Value
    {
        get
        {
            CheckPosition();
            return TreePage.CellValue(_space, _leaf + _slots[_at]);
        }
    }

    /// <summary>In the tree <c>sets</c>: the set of the current key. Valid until the snapshot is disposed.</summary>
    public StoredSet Set
    {
        get
        {
            CheckPosition();
            return new StoredSet(_space, _leaf + _slots[_at]);
        }
    }

    /// <summary>
    /// Moves to the first key not less than the given one; false if there is none within the bounds, and <see cref="MovePrevious"/> then moves to the last one.
    /// If that key is in the current leaf, only the leaf is searched.
    /// </summary>
    public bool Seek(ReadOnlySpan<byte> key)
    {
        if (key.SequenceCompareTo(_lower) < 0)
            key = _lower;
        // A leaf far behind the upper bound is not next to the one with the last key, to which the cursor may move back.
        else if (_upper.Length > 0 && key.SequenceCompareTo(_upper) > 0)
            key = _upper;
        if (!IsWithinLeaf(key) && !Descend(key, toLast: false))
            return false;
        _at = Math.Clamp(TreePage.LowerBound(_leaf, key, out _), _first, _end);
        return _at < _end || NextLeaf();
    }

    /// <summary>
    /// Moves forward to the first key not less than the given one; false if there is none. Only for a cursor without bounds that is not behind that key. If the
    /// key is in the current leaf, only the leaf is searched.
    /// </summary>
    /// <param name="key">The key.</param>
    /// <param name="isEqual">Whether the cursor is at that key now.</param>
    public bool Reach(ReadOnlySpan<byte> key, out bool isEqual)
    {
        isEqual = false;
        if (_leaf == null || (_at = TreePage.LowerBound(_leaf, key, Math.Max(_at, 0), out isEqual)) == _end)
        {
            if (!Descend(key, toLast: false))
                return false;
            _at = TreePage.LowerBound(_leaf, key, out isEqual);
        }
        return _at < _end || NextLeaf();
    }

    /// <summary>Moves to the next key; false at the end. From there <see cref="MovePrevious"/> moves back to the last key.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public bool MoveNext()
    {
        if (_at + 1 >= _end)
            return LeaveLeafForward();
        _at++;
        Page.PrefetchBody(_ahead, _at);
        return true;
    }

    /// <summary>Moves to the previous key; false before the first.</summary>
    public bool MovePrevious()
    {
        if (_leaf == null)
        {
            if (!Descend(_upper, toLast: _upper.Length == 0))
                return false;
            _at = _end;
        }
        if (_at >= _first)
            _at--;
        return _at >= _first || PreviousLeaf();
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        var key = _key;
        _key = [];
        _leaf = null;
        (_first, _end) = (0, 0);
        if (key.Length > 0)
            ArrayPool<byte>.Shared.Return(key);
    }

    private bool LeaveLeafForward()
    {
        if (_leaf == null)
            return Seek(_lower);
        if (_at < _end)
            _at++;
        return _at < _end || NextLeaf();
    }

    private bool IsWithinLeaf(ReadOnlySpan<byte> key) =>
        _leaf != null && Page.Count(_leaf) > 0 && TreePage.Compare(_leaf, Page.Count(_leaf) - 1, key) >= 0 && TreePage.Compare(_leaf, 0, key) <= 0;

    // Before the first move and after the end no position is valid, because there is no entry between the bounds.
    private void CheckPosition()
    {
        if (_at < _first || _at >= _end)
            throw new InvalidOperationException("The cursor is not positioned at a key.");
    }

    private bool Descend(ReadOnlySpan<byte> key, bool toLast)
    {
        if (_root.Link.Reference.IsNone || (_upper.Length > 0 && _lower.AsSpan().SequenceCompareTo(_upper) >= 0))
            return false;
        var root = _root;
        var page = _space.ResolveNode(&root.Link);
        for (_depth = 0; Page.Type(page) == PageType.Branch; _depth++)
        {
            _path[_depth] = (nint)page;
            _index[_depth] = toLast ? Page.Count(page) - 1 : TreePage.FindChild(page, key);
            page = _space.ResolveNode(TreePage.Child(page, _index[_depth]));
        }
        _ahead = page;
        Enter(page);
        return true;
    }

    /// <summary>Makes a leaf the current one, and finds the positions of the bounds in it.</summary>
    private void Enter(byte* leaf)
    {
        _leaf = leaf;
        _slots = Page.Slots(leaf);
        var prefix = Page.Prefix(leaf);
        prefix.CopyTo(_key);
        _prefixLength = prefix.Length;
        _first = _lower.Length == 0 ? 0 : TreePage.LowerBound(leaf, _lower, out _);
        _end = _upper.Length == 0 ? Page.Count(leaf) : TreePage.LowerBound(leaf, _upper, out _);
    }

    private bool NextLeaf()
    {
        // If the upper bound is within this leaf, nothing follows.
        if (_end < Page.Count(_leaf) || !Step(forward: true))
            return false;
        _at = _first;
        return _at < _end;
    }

    private bool PreviousLeaf()
    {
        if (_first > 0 || !Step(forward: false))
            return false;
        _at = _end - 1;
        return _at >= _first;
    }

    private byte* Child(int level, bool forward)
    {
        var link = TreePage.Child((byte*)_path[level], _index[level]);
        return forward ? _space.ResolveNext(link, _readAhead.ReadsByCalls) : _space.ResolveNode(link);
    }

    // The link to the branch after the one at a level of the path; null if its parent has none.
    private PageLink* Sibling(int level) =>
        level > 0 && _index[level - 1] + 1 < Page.Count((byte*)_path[level - 1]) ? TreePage.Child((byte*)_path[level - 1], _index[level - 1] + 1) : null;

    private bool Step(bool forward)
    {
        var level = _depth - 1;
        while (level >= 0 && _index[level] == (forward ? Page.Count((byte*)_path[level]) - 1 : 0))
            level--;
        if (level < 0)
            return false;
        _index[level] += forward ? 1 : -1;
        var page = Child(level, forward);
        while (Page.Type(page) == PageType.Branch)
        {
            _path[++level] = (nint)page;
            _index[level] = forward ? 0 : Page.Count(page) - 1;
            page = Child(level, forward);
        }
        Enter(page);
        // The processor fetches the next leaf while the caller reads this one.
        var parent = (byte*)_path[level];
        var next = _index[level] + 1;
        if (forward)
            _readAhead.Step(_space, parent, next, Sibling(level));
        _ahead = forward && next < Page.Count(parent) ? _space.Locate(PageLink.Load(TreePage.Child(parent, next))) : page;
        return true;
    }
}
