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

    /// <summary>Reads a whole tree.</summary>
    public void Read(TreeRoot root)
    {
        if (!root.Link.Reference.IsNone)
            Read(root.Link, default, depth: 1);
    }

    private void Read(PageLink link, KeyRange keys, int depth)
    {
        if (!visitor.Wants(keys))
            return;
        byte* page;
        try
        {
            visitor.Reached(new PageRun(link.Reference.Number, space.CheckPage(link.Reference, link.Checksum)));
            page = space.Locate(link.Reference);
            if (Page.Type(page) is not (PageType.Leaf or PageType.Branch) || depth > PageStructure.DepthMax)
                throw new CorruptStoreException($"page {link.Reference.Number} (offset {link.Reference.Value}) has type {(byte)Page.Type(page)}, which is not valid at level {depth} of a tree");
            CheckOrder(page, link.Reference, keys);
        }
        catch (CorruptStoreException fault)
        {
            visitor.Damaged(fault, link.Reference, keys);
            return;
        }
        if (Page.Type(page) == PageType.Leaf)
            ReadEntries(page);
        else
            ReadChildren(page, keys, depth);
    }

    private void ReadChildren(byte* page, KeyRange keys, int depth)
    {
        var from = keys.From;
        for (var index = 0; index < Page.Count(page); index++)
        {
            var before = index + 1 < Page.Count(page) ? KeyAt(page, index + 1).ToArray() : keys.Before;
            Read(*TreePage.Child(page, index), new KeyRange(from, before), depth + 1);
            from = before;
        }
    }

    private void ReadEntries(byte* page)
    {
        for (var index = 0; index < Page.Count(page); index++)
        {
            var key = KeyAt(page, index);
            if (TreePage.IsOverflow(page, index, out var run))
            {
                try
                {
                    visitor.Reached(new PageRun(run->Reference.Number, space.CheckPage(run->Reference, run->Checksum)));
                    _ = space.ResolveRun(run, TreePage.OverflowLength(run));
                }
                catch (CorruptStoreException fault)
                {
                    visitor.Damaged(fault, run->Reference, new KeyRange(key.ToArray(), [.. key, 0]));
                    continue;
                }
            }
            visitor.Entry(key, TreePage.Value(space, page, index));
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
