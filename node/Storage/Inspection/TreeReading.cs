using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Reads a tree of a damaged file as far as it can be read: where a page is damaged, it goes on with the next one. Verifies each checksum and the order of
/// the keys. Needs memory for one path. One thread that has the file to itself.
/// </summary>
internal sealed unsafe class TreeReading(PageSpace space, ITreeVisitor visitor)
{
    private readonly byte[] _key = new byte[Page.KeyBytesMax];

    /// <summary>The key of the set whose tree is being read, and how many members were; null in a tree of keys.</summary>
    private byte[]? _set;
    private ulong _members;
    private bool _isDamaged;

    /// <summary>
    /// The level of the leaves of the tree, and of the set that is being read; 0 before the first one, and negative when one on another level was reported.
    /// </summary>
    private int _leafLevel;
    private int _memberLevel;

    /// <summary>Reads a whole tree.</summary>
    public void Read(TreeRoot root)
    {
        _leafLevel = 0;
        if (!root.Link.Reference.IsNone)
            Read(root.Link, default, depth: 1);
    }

    /// <summary>Reads a page, and what is below it. Returns what is in it; null if the page is damaged, or not wanted.</summary>
    private SubtreeSummary? Read(PageLink link, KeyRange keys, int depth)
    {
        if (_set is null && !visitor.Wants(keys))
            return null;
        byte* page;
        try
        {
            visitor.Reached(new PageRun(link.Reference.Number, space.CheckPage(link.Reference, link.Checksum)));
            page = space.Locate(link.Reference);
            if (Page.Type(page) is not (PageType.Leaf or PageType.Branch) || depth > PageStructure.DepthMax)
                throw new CorruptStoreException($"page {link.Reference.Number} (offset {link.Reference.Value}) has type {(byte)Page.Type(page)}, which is not "
                    + $"valid at level {depth} of a tree");
            CheckOrder(page, link.Reference, keys);
        }
        catch (CorruptStoreException fault)
        {
            Damaged(fault, link.Reference, keys);
            return null;
        }
        var summary = SubtreeSummary.Of(page);
        if (Page.Type(page) == PageType.Branch)
        {
            ReadChildren(page, link.Reference, keys, depth);
            return summary;
        }
        CheckLevel(ref _set is null ? ref _leafLevel : ref _memberLevel, depth, link.Reference, keys);
        if (_set is not null)
            ReadMembers(page, link.Reference);
        else
            ReadEntries(page, link.Reference);
        return summary;
    }

    /// <summary>
    /// The engine drops a part of a tree without reading its leaves, and tells by their level which pages these are. The entries of a leaf on another level are
    /// read all the same.
    /// </summary>
    private void CheckLevel(ref int expected, int level, PageRef place, KeyRange keys)
    {
        if (expected == 0)
            expected = level;
        if (expected < 0 || expected == level)
            return;
        var fault = new CorruptStoreException(
            $"page {place.Number} (offset {place.Value}) is a leaf at level {level} of a tree, and another leaf is at level {expected}");
        expected = -1;
        Damaged(fault, place, keys);
    }

    /// <summary>What is lost of a set is not known by name.</summary>
    private void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys)
    {
        _isDamaged = true;
        visitor.Damaged(fault, place, _set is null ? keys : new KeyRange(_set, [.. _set, 0]));
    }

    private void ReadMembers(byte* page, PageRef place)
    {
        if (Page.LeafHasReferences(page))
            Damaged(new CorruptStoreException($"page {place.Number} (offset {place.Value}) has members of a set that refer to other pages"), place, default);
        for (var index = 0; index < Page.Count(page); index++, _members++)
            visitor.Member(_set, KeyAt(page, index));
    }

    /// <summary>Reads the tree of an entry.</summary>
    private void ReadSet(byte[] key, PageLink link, ReadOnlySpan<byte> value)
    {
        (_set, _members, _isDamaged, _memberLevel) = (key, 0, false, 0);
        Read(link, default, depth: 1);
        var count = new SetValue(value).Count;
        if (!_isDamaged && _members != count)
            Damaged(new CorruptStoreException($"a set has {_members} members, but its entry records {count}"), link.Reference, default);
        _set = null;
    }

    /// <summary>
    /// What a branch records of a child is compared with what the child has, whose own children are compared with that. Nothing is lost if it differs: it is
    /// used to count and to delete ranges.
    /// </summary>
    private void ReadChildren(byte* page, PageRef place, KeyRange keys, int depth)
    {
        var from = keys.From;
        for (var index = 0; index < Page.Count(page); index++)
        {
            var before = index + 1 < Page.Count(page) ? KeyAt(page, index + 1).ToArray() : keys.Before;
            var (child, recorded) = (*TreePage.Child(page, index), TreePage.Subtree(page, index)->Summary);
            if (Read(child, new KeyRange(from, before), depth + 1) is { } found && found != recorded)
                Damaged(
                    new CorruptStoreException($"page {place.Number} (offset {place.Value}) records {recorded} below child {index}, which has {found}"), place,
                    new KeyRange(from, before));
            from = before;
        }
    }

    private void ReadEntries(byte* page, PageRef place)
    {
        for (var index = 0; index < Page.Count(page); index++)
        {
            var key = KeyAt(page, index);
            var link = TreePage.Reference(page, index);
            var hasTree = TreePage.HasTree(page, index);
            ReadOnlySpan<byte> value;
            try
            {
                if (link != null && !hasTree)
                    visitor.Reached(new PageRun(link->Reference.Number, space.CheckPage(link->Reference, link->Checksum)));
                value = TreePage.Value(space, page, index);
            }
            catch (CorruptStoreException fault)
            {
                Damaged(fault, link != null ? link->Reference : place, new KeyRange(key.ToArray(), [.. key, 0]));
                continue;
            }
            if (visitor.Entry(key, value, hasTree) && hasTree)
                ReadSet(key.ToArray(), *link, value);
        }
    }

    /// <summary>The keys of a page rise and are within its range. The first key of a branch stands for all before the second.</summary>
    private void CheckOrder(byte* page, PageRef reference, KeyRange keys)
    {
        var before = keys.From;
        for (var index = Page.Type(page) == PageType.Branch ? 1 : 0; index < Page.Count(page); index++)
        {
            var key = KeyAt(page, index).ToArray();
            var isFirst = ReferenceEquals(before, keys.From);
            if ((before is not null && key.AsSpan().SequenceCompareTo(before) is var order && (order < 0 || (order == 0 && !isFirst)))
                || (keys.Before is not null && key.AsSpan().SequenceCompareTo(keys.Before) >= 0))
                throw new CorruptStoreException($"key {index} of page {reference.Number} (offset {reference.Value}) is out of order");
            before = key;
        }
    }

    private ReadOnlySpan<byte> KeyAt(byte* page, int index) => _key.AsSpan(0, TreePage.CopyKey(page, index, _key));
}
