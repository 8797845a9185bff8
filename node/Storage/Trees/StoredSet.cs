using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// A set as a reader sees it, in place: valid as long as the snapshot, or until the batch changes anything. Its number of members and the etag of its last
/// change are known without reading it.
/// </summary>
/// <exception cref="CorruptStoreException">From any read: a page is not what was written.</exception>
internal readonly unsafe struct StoredSet
{
    private readonly PageSpace _space;
    private readonly byte* _value;
    private readonly int _valueBytes;
    private readonly TreeRoot _tree;

    /// <summary>The set in a cell of the tree <c>sets</c>.</summary>
    internal StoredSet(PageSpace space, byte* cell)
    {
        _space = space;
        // Only values of keys are compressed. What is decompressed is a copy, which may be moved.
        if (TreePage.IsCompressed(cell))
            throw space.Undecodable(cell);
        var stored = TreePage.CellValue(space, cell);
        // Pages are not moved. The copy of a divided value may be, but it is longer than that of any set, and is refused below.
        fixed (byte* value = stored)
            _value = value;
        _valueBytes = stored.Length;
        var set = new SetValue(stored);
        (Etag, Count) = (set.Etag, set.Count);
        if (TreePage.CellHasTree(cell))
            _tree = TreePage.CellTree(cell);
    }

    /// <summary>The last change of the set.</summary>
    public Etag Etag { get; }

    /// <summary>How many members it has, at least one.</summary>
    public ulong Count { get; }

    /// <summary>Its header as it is stored: etag and number of members.</summary>
    internal ReadOnlySpan<byte> Header => new(_value, SetValue.HeaderBytes);

    /// <summary>Whether the members are in a tree.</summary>
    internal bool IsPromoted => !_tree.Link.Reference.IsNone;

    /// <summary>The tree of a large set, without the number of its members.</summary>
    internal TreeRoot Tree => _tree;

    /// <summary>The members of a small set.</summary>
    internal SetValue Small => new(new ReadOnlySpan<byte>(_value, _valueBytes));

    /// <summary>Whether the set has a member.</summary>
    public bool Contains(ReadOnlySpan<byte> member)
    {
        var tree = _tree;
        if (IsPromoted)
            return Lookup.Find(_space, &tree, member) != null;
        Small.LowerBound(member, out var found);
        return found;
    }

    /// <summary>Iterates over the members in order.</summary>
    public SetCursor Members() => new(this, IsPromoted ? new Cursor(_space, _tree, default, default) : null);
}

/// <summary>
/// Iterates over the members of a set in order, in both directions. It begins outside the members: <see cref="MoveNext"/> goes to the first one,
/// <see cref="MovePrevious"/> to the last. To seek within the leaf at which the cursor is takes one search of a page. One thread at a time; dispose it
/// before the snapshot.
/// </summary>
internal sealed class SetCursor(StoredSet set, Cursor? tree) : IDisposable
{
    private readonly int _count = tree is null ? set.Small.SmallCount : 0;
    private int _at = -1;
    private bool _isFresh = true;

    /// <summary>The current member. Valid until the cursor moves.</summary>
    public ReadOnlySpan<byte> Member
    {
        get
        {
            if (tree is not null)
                return tree.Key;
            if (_at < 0 || _at >= _count)
                throw new InvalidOperationException("The cursor is not positioned at a member.");
            return set.Small[_at];
        }
    }

    /// <summary>Moves to the next member; false at the end. From there <see cref="MovePrevious"/> moves back to the last one.</summary>
    public bool MoveNext()
    {
        if (tree is not null)
            return tree.MoveNext();
        (_at, _isFresh) = (Math.Min(_at + 1, _count), false);
        return _at < _count;
    }

    /// <summary>Moves to the previous member; false before the first.</summary>
    public bool MovePrevious()
    {
        if (tree is not null)
            return tree.MovePrevious();
        (_at, _isFresh) = (Math.Max((_isFresh ? _count : _at) - 1, -1), false);
        return _at >= 0;
    }

    /// <summary>Moves to the first member not less than the given one; false if there is none.</summary>
    public bool Seek(ReadOnlySpan<byte> member)
    {
        if (tree is not null)
            return tree.Seek(member);
        (_at, _isFresh) = (set.Small.LowerBound(member, out _), false);
        return _at < _count;
    }

    /// <summary>Moves forward to the first member not less than the given one, behind which the cursor must not be; false if there is none.</summary>
    /// <param name="member">The member.</param>
    /// <param name="isEqual">Whether the cursor is at that member now.</param>
    public bool Reach(ReadOnlySpan<byte> member, out bool isEqual)
    {
        if (tree is not null)
            return tree.Reach(member, out isEqual);
        (_at, _isFresh) = (set.Small.LowerBound(member, out isEqual), false);
        return _at < _count;
    }

    /// <inheritdoc/>
    public void Dispose() => tree?.Dispose();
}
