using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Adds members to sets and removes them, one by one or from the first on. A small set is the value of its key. When that value would be too large for a leaf,
/// the set is promoted: its members become the keys of a tree, whose root is in the key's cell. It is demoted when its members need half of a small set's bound
/// or less, so that a set at the bound does not go back and forth. A set without members is removed. Used by <see cref="WriteBatch"/>; writer only.
/// </summary>
/// <remarks>
/// A tree may have several leaves although its members would fit into a value; it stays a tree then until removals have merged them. So replicas with the same
/// members may store them differently, and nothing that is compared between replicas depends on it.
/// </remarks>
/// <param name="space">Resolves references.</param>
/// <param name="keys">Changes the tree of the sets.</param>
/// <param name="members">Changes the trees of the large sets.</param>
internal sealed unsafe class SetWriter(PageSpace space, TreeWriter keys, TreeWriter members)
{
    /// <summary>The most bytes that a promoted set's members need as a value for it to be demoted.</summary>
    internal const int DemotedBytesMax = SetValue.BytesMax / 2;

    private readonly byte[] _value = new byte[SetValue.BytesMax];

    /// <summary>The root of the tree to which the path of the members belongs. No other set has that page.</summary>
    private PageRef _root;

    /// <summary>Forgets the path in the last set: a batch begins, or sets are removed as a whole.</summary>
    public void Forget()
    {
        members.Forget();
        _root = default;
    }

    /// <summary>Adds a member; false if it was there.</summary>
    public bool Add(TreeRoot* sets, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member, Etag etag)
    {
        var cell = keys.Find(sets, key);
        if (cell != null && TreePage.CellHasTree(cell))
            return AddToTree(sets, key, cell, member, etag);
        var small = cell == null ? default : new SetValue(TreePage.CellValue(space, cell));
        var at = small.LowerBound(member, out var isThere);
        if (isThere)
            return false;
        if (OverflowRun.IsNeeded(key.Length, small.Bytes + SetValue.MemberOverhead + member.Length))
            Promote(sets, key, small, member, etag);
        else
            keys.Put(sets, key, _value.AsSpan(0, small.WriteWith(_value, at, member, etag)), default);
        return true;
    }

    /// <summary>Removes a member; false if it was not there.</summary>
    public bool Remove(TreeRoot* sets, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member, Etag etag)
    {
        var cell = keys.Find(sets, key);
        if (cell == null)
            return false;
        if (TreePage.CellHasTree(cell))
            return RemoveFromTree(sets, key, cell, member, etag);
        var small = new SetValue(TreePage.CellValue(space, cell));
        var at = small.LowerBound(member, out var isThere);
        if (!isThere)
            return false;
        if (small.SmallCount == 1)
            keys.Delete(sets, key);
        else
            keys.Put(sets, key, _value.AsSpan(0, small.WriteWithout(_value, at, etag)), default);
        return true;
    }

    /// <summary>Removes the members before one; empty: all, and the set with them. Returns how many there were.</summary>
    public ulong RemoveBefore(TreeRoot* sets, ReadOnlySpan<byte> key, ReadOnlySpan<byte> end, Etag etag)
    {
        var cell = keys.Find(sets, key);
        if (cell == null)
            return 0;
        var set = new SetValue(TreePage.CellValue(space, cell));
        if (!end.IsEmpty && TreePage.CellHasTree(cell))
            return RemoveFromTreeBefore(sets, key, end, etag);
        var removed = end.IsEmpty ? set.Count : (ulong)set.LowerBound(end, out _);
        if (removed == set.Count)
        {
            Forget();
            keys.Delete(sets, key);
        }
        else if (removed > 0)
        {
            keys.Put(sets, key, _value.AsSpan(0, set.WriteFrom(_value, (int)removed, etag)), default);
        }
        return removed;
    }

    /// <summary>Makes a tree of the members of a small set and one more.</summary>
    private void Promote(TreeRoot* sets, ReadOnlySpan<byte> key, SetValue small, ReadOnlySpan<byte> member, Etag etag)
    {
        Forget();
        var tree = default(TreeRoot);
        for (var index = 0; index < small.SmallCount; index++)
            members.Put(&tree, small[index], default, default);
        members.Put(&tree, member, default, default);
        keys.PutTree(sets, key, tree.Link, Header(tree, etag));
        _root = tree.Link.Reference;
    }

    private bool AddToTree(TreeRoot* sets, ReadOnlySpan<byte> key, byte* cell, ReadOnlySpan<byte> member, Etag etag)
    {
        var tree = Open(cell);
        if (members.Find(&tree, member) != null)
            return false;
        var leaf = keys.OwnLeaf(sets, key, out var index);
        tree = Open(Page.Cell(leaf, index));
        members.Put(&tree, member, default, default);
        Store(leaf, index, tree, etag);
        return true;
    }

    private bool RemoveFromTree(TreeRoot* sets, ReadOnlySpan<byte> key, byte* cell, ReadOnlySpan<byte> member, Etag etag)
    {
        var tree = Open(cell);
        if (members.Find(&tree, member) == null)
            return false;
        var leaf = keys.OwnLeaf(sets, key, out var index);
        tree = Open(Page.Cell(leaf, index));
        members.Delete(&tree, member);
        StoreSmaller(sets, key, leaf, index, tree, etag);
        return true;
    }

    private ulong RemoveFromTreeBefore(TreeRoot* sets, ReadOnlySpan<byte> key, ReadOnlySpan<byte> end, Etag etag)
    {
        // The leaf is copied first, because only the copy has the final references.
        var leaf = keys.OwnLeaf(sets, key, out var index);
        var tree = Open(Page.Cell(leaf, index));
        var removed = members.DeleteRange(&tree, default, end);
        if (removed > 0)
            StoreSmaller(sets, key, leaf, index, tree, etag);
        return removed;
    }

    /// <summary>Stores the tree of an entry from which members were removed, or what the set has become without them.</summary>
    private void StoreSmaller(TreeRoot* sets, ReadOnlySpan<byte> key, byte* leaf, int index, in TreeRoot tree, Etag etag)
    {
        Store(leaf, index, tree, etag);
        if (tree.Count == 0)
        {
            Forget();
            keys.Delete(sets, key);
        }
        else if (TryWriteSmall(tree, etag) is > 0 and var bytes)
        {
            Forget();
            keys.Put(sets, key, _value.AsSpan(0, bytes), default);
        }
    }

    /// <summary>The tree of an entry. The path in the last set is kept if this is the same one.</summary>
    private TreeRoot Open(byte* cell)
    {
        var tree = TreePage.CellTree(cell);
        tree.Count = new SetValue(TreePage.CellValue(space, cell)).Count;
        if (_root != tree.Link.Reference)
            members.Forget();
        _root = tree.Link.Reference;
        return tree;
    }

    /// <summary>Stores the tree of an entry after a change, in a leaf of the batch.</summary>
    private void Store(byte* leaf, int index, in TreeRoot tree, Etag etag)
    {
        TreePage.SetTree(leaf, index, tree.Link, Header(tree, etag));
        _root = tree.Link.Reference;
    }

    /// <summary>The value beside the tree of a large set, in the buffer of values.</summary>
    private ReadOnlySpan<byte> Header(in TreeRoot tree, Etag etag)
    {
        SetValue.WriteHeader(_value, etag, tree.Count);
        return _value.AsSpan(0, SetValue.HeaderBytes);
    }

    /// <summary>Writes the value of a large set that has become small enough, and returns its length; otherwise 0.</summary>
    [SkipLocalsInit]
    private int TryWriteSmall(TreeRoot tree, Etag etag)
    {
        if (tree.Count > DemotedBytesMax / (SetValue.MemberOverhead + 1))
            return 0;
        var leaf = space.ResolveNode(&tree.Link);
        if (Page.Type(leaf) != PageType.Leaf)
            return 0;
        var bytes = SetValue.HeaderBytes;
        for (var index = 0; index < Page.Count(leaf) && bytes <= DemotedBytesMax; index++)
            bytes += SetValue.MemberOverhead + TreePage.KeyLength(leaf, index);
        if (bytes > DemotedBytesMax)
            return 0;
        var writer = new SmallSetWriter(_value, Page.Count(leaf), etag);
        Span<byte> member = stackalloc byte[Page.KeyBytesMax];
        for (var index = 0; index < Page.Count(leaf); index++)
            writer.Add(member[..TreePage.CopyKey(leaf, index, member)]);
        return writer.Length;
    }
}
