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

    /// <summary>For keys that deltas have themselves, so that the other buffer keeps the prefix of the current leaf.</summary>
    private byte[]? _ownKey;
    private byte* _leaf;

    /// <summary>The delta whose base is the current leaf; null if that is a whole leaf. Positions are in <see cref="_order"/> then.</summary>
    private byte* _delta;

    /// <summary>The entries of a delta and its base (<see cref="DeltaPage.Merge"/>).</summary>
    private ushort[]? _order;
    private int _count;
    private ushort* _slots;
    private ushort* _ownSlots;
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
            return _delta == null ? KeyInLeaf(_at) : KeyOfMerged(_order![_at]);
        }
    }

    /// <summary>The current value, in place unless it is divided or compressed. Valid until the snapshot is disposed.</summary>
    public ReadOnlySpan<byte> Value
    {
        get
        {
            CheckPosition();
            return TreePage.CellValue(_space, CellAt(_at));
        }
    }

    /// <summary>
    /// At least so many of the current value's first bytes, or all if it has fewer. For who needs no more than the header of a value: of a divided one the run
    /// is mostly not looked at, and of a compressed one this is the header with which it was put. Valid until the snapshot is disposed.
    /// </summary>
    public ReadOnlySpan<byte> Beginning(int bytesLeast)
    {
        CheckPosition();
        return TreePage.CellBeginning(_space, CellAt(_at), bytesLeast);
    }

    /// <summary>Reads the run of the current value, if it has one, so that the value is in memory. What makes a value of it is left to its readers.</summary>
    public void ReadRun()
    {
        CheckPosition();
        TreePage.ReadRun(_space, CellAt(_at));
    }

    /// <summary>The length of the current value, without a look at its run.</summary>
    public int ValueLength
    {
        get
        {
            CheckPosition();
            return TreePage.CellValueLength(CellAt(_at));
        }
    }

    /// <summary>In the tree <c>sets</c>: the set of the current key. Valid until the snapshot is disposed.</summary>
    public StoredSet Set
    {
        get
        {
            CheckPosition();
            return new StoredSet(_space, CellAt(_at));
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
        _at = Math.Clamp(LowerBound(key, out _), _first, _end);
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
        if (_leaf == null || (_at = LowerBoundSoon(key, Math.Max(_at, 0), out isEqual)) == _end)
        {
            if (!Descend(key, toLast: false))
                return false;
            _at = LowerBound(key, out isEqual);
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
        var (key, ownKey, order) = (_key, _ownKey, _order);
        _key = [];
        (_ownKey, _order) = (null, null);
        _leaf = _delta = null;
        (_first, _end) = (0, 0);
        if (key.Length > 0)
            ArrayPool<byte>.Shared.Return(key);
        if (ownKey is not null)
            ArrayPool<byte>.Shared.Return(ownKey);
        if (order is not null)
            ArrayPool<ushort>.Shared.Return(order);
    }

    /// <summary>The key of an entry of the current leaf, or of the base of the current delta.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private ReadOnlySpan<byte> KeyInLeaf(int index) =>
        _key.AsSpan(0, _prefixLength + TreePage.CopyLeafSuffix(_leaf + _slots[index], Page.Heads(_leaf)[index], _key.AsSpan(_prefixLength)));

    /// <summary>The key of a merged entry. A delta has no prefix.</summary>
    private ReadOnlySpan<byte> KeyOfMerged(ushort entry)
    {
        var index = DeltaPage.IndexOf(entry);
        return (entry & DeltaPage.IsOwn) == 0
            ? KeyInLeaf(index)
            : _ownKey.AsSpan(0, TreePage.CopyLeafSuffix(_delta + _ownSlots[index], Page.Heads(_delta)[index], _ownKey));
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
        _leaf != null && _count > 0 && TreePage.Compare(PageAt(_count - 1), IndexAt(_count - 1), key) >= 0 && TreePage.Compare(PageAt(0), IndexAt(0), key) <= 0;

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
        Enter(page, forward: false);
        _ahead = _leaf;
        return true;
    }

    /// <summary>Makes a leaf the current one, and finds the positions of the bounds in it.</summary>
    private void Enter(byte* leaf, bool forward)
    {
        if (Page.Type(leaf) == PageType.Delta)
        {
            EnterDelta(leaf, forward);
            return;
        }
        _delta = null;
        SetLeaf(leaf);
        _count = Page.Count(leaf);
        _first = _lower.Length == 0 ? 0 : TreePage.LowerBound(leaf, _lower, out _);
        _end = _upper.Length == 0 ? _count : TreePage.LowerBound(leaf, _upper, out _);
    }

    /// <summary>
    /// Makes a delta and its base the current leaf. Both stay what they are as long as the snapshot, also when another base takes the place of this one,
    /// because entries that differ between the two are the delta's.
    /// </summary>
    private void EnterDelta(byte* delta, bool forward)
    {
        _delta = delta;
        _ownSlots = Page.Slots(delta);
        _ownKey ??= ArrayPool<byte>.Shared.Rent(Page.KeyBytesMax);
        SetLeaf(forward ? _space.ResolveNextBase(delta, _readAhead.ReadsByCalls) : _space.ResolveBase(delta));
        _count = DeltaPage.Merge(delta, _leaf, _order ??= ArrayPool<ushort>.Shared.Rent(LeafFill.EntriesMax));
        _first = _lower.Length == 0 ? 0 : LowerBound(_lower, out _);
        _end = _upper.Length == 0 ? _count : LowerBound(_upper, out _);
    }

    /// <summary>Has a leaf be the current one, or the base of the current delta.</summary>
    private void SetLeaf(byte* leaf)
    {
        _leaf = leaf;
        _slots = Page.Slots(leaf);
        var prefix = Page.Prefix(leaf);
        prefix.CopyTo(_key);
        _prefixLength = prefix.Length;
    }

    private byte* PageAt(int position) => _delta == null ? _leaf : DeltaPage.PageOf(_delta, _leaf, _order![position]);

    private int IndexAt(int position) => _delta == null ? position : DeltaPage.IndexOf(_order![position]);

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    private byte* CellAt(int position) => _delta == null ? _leaf + _slots[position] : CellOfMerged(_order![position]);

    private byte* CellOfMerged(ushort entry)
    {
        var index = DeltaPage.IndexOf(entry);
        return (entry & DeltaPage.IsOwn) == 0 ? _leaf + _slots[index] : _delta + _ownSlots[index];
    }

    /// <summary>The position of the first entry of the current leaf with a key not less than the given one.</summary>
    private int LowerBound(ReadOnlySpan<byte> key, out bool isEqual) =>
        _delta == null ? TreePage.LowerBound(_leaf, key, out isEqual) : LowerBoundOfMerged(key, 0, out isEqual);

    /// <summary>The same among the entries from one on; fast if it is not much greater.</summary>
    private int LowerBoundSoon(ReadOnlySpan<byte> key, int from, out bool isEqual) =>
        _delta == null ? TreePage.LowerBound(_leaf, key, from, out isEqual) : LowerBoundOfMerged(key, from, out isEqual);

    private int LowerBoundOfMerged(ReadOnlySpan<byte> key, int from, out bool isEqual)
    {
        isEqual = false;
        for (var to = _count; from < to;)
        {
            var middle = (from + to) >> 1;
            var order = TreePage.Compare(PageAt(middle), IndexAt(middle), key);
            isEqual |= order == 0;
            if (order < 0)
                from = middle + 1;
            else
                to = middle;
        }
        return from;
    }

    private bool NextLeaf()
    {
        // If the upper bound is within this leaf, nothing follows.
        if (_end < _count || !Step(forward: true))
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
        Enter(page, forward);
        // The processor fetches the next leaf while the caller reads this one. Of a delta it fetches the base, which is what is long.
        var parent = (byte*)_path[level];
        var next = _index[level] + 1;
        if (forward)
            _readAhead.Step(_space, parent, next, Sibling(level));
        _ahead = forward && next < Page.Count(parent) ? _space.Locate(PageSpace.FileReference(PageLink.Load(TreePage.Child(parent, next)))) : _leaf;
        return true;
    }
}
