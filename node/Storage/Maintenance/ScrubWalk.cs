using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Reads all pages of the file that the published trees reach, in key order and in steps, and verifies their checksums even if they were verified before.
/// Nothing is held between two steps: the next one continues at a key, in the state published then. Any thread, one at a time.
/// </summary>
internal sealed unsafe class ScrubWalk(PageStore pages)
{
    private readonly PageSpace _space = pages.Space;
    private int _tree;
    private byte[] _from = [];

    /// <summary>
    /// The member at which the next step continues in the set of the key <see cref="_from"/>, and this step does; empty at the set's beginning.
    /// </summary>
    private byte[] _memberNext = [];
    private byte[] _member = [];
    private long _bytesLeft;

    /// <summary>Pages of the file verified so far, in all passes.</summary>
    public long PagesChecked { get; private set; }

    /// <summary>Continues for about this many bytes. True when all trees are done; the next step then starts over.</summary>
    /// <exception cref="CorruptStoreException">A page does not match its parent's reference.</exception>
    /// <exception cref="SnapshotLimitException">The limit of open snapshots is reached; the step can be retried.</exception>
    public bool Step(long bytesMax)
    {
        using var snapshot = pages.Roots.OpenSnapshot();
        (_member, _memberNext) = (_memberNext, []);
        for (_bytesLeft = bytesMax; _tree < StoreRoot.TreesMax; _tree++, _from = [])
        {
            var root = snapshot.Root.Trees[_tree];
            if (!root.Link.Reference.IsNone && !Walk(root.Link, _from))
                return false;
        }
        _tree = 0;
        return true;
    }

    /// <summary>
    /// False when the step's bytes are used up. The next step then continues at <see cref="_from"/>, which is past at least one leaf or large value; in the
    /// tree of a set it is one of the members.
    /// </summary>
    private bool Walk(PageLink link, ReadOnlySpan<byte> from)
    {
        Check(link);
        var page = _space.ResolveNode(&link);
        if (Page.Type(page) == PageType.Delta)
            return WalkDelta(page, from);
        if (Page.Type(page) == PageType.Leaf)
            return WalkValues(page, from);
        var first = ChildOf(page, from);
        for (var i = first; i < Page.Count(page); i++)
        {
            if (i > first && _bytesLeft <= 0)
            {
                _from = KeyAt(page, i);
                return false;
            }
            if (!Walk(PageLink.LoadWhole(TreePage.Child(page, i)), i == first ? from : default))
                return false;
        }
        return true;
    }

    /// <summary>Can stop between values, and within a set, because a leaf may refer to gigabytes of them.</summary>
    private bool WalkValues(byte* leaf, ReadOnlySpan<byte> from)
    {
        var isFirst = true;
        for (var i = 0; i < Page.Count(leaf); i++)
        {
            if (!WalkValue(leaf, i, from, ref isFirst))
                return false;
        }
        return true;
    }

    /// <summary>Checks the base of a delta, and goes on with what the whole leaf refers to.</summary>
    private bool WalkDelta(byte* delta, ReadOnlySpan<byte> from)
    {
        Check(DeltaPage.Base(delta));
        if (!DeltaPage.WholeHasReferences(delta))
            return true;
        var isFirst = true;
        var whole = _space.ResolveBase(delta);
        Span<ushort> order = stackalloc ushort[LeafFill.EntriesMax];
        foreach (var entry in order[..DeltaPage.Merge(delta, whole, order)])
        {
            if (!WalkValue(DeltaPage.PageOf(delta, whole, entry), DeltaPage.IndexOf(entry), from, ref isFirst))
                return false;
        }
        return true;
    }

    private bool WalkValue(byte* leaf, int index, ReadOnlySpan<byte> from, ref bool isFirst)
    {
        var link = TreePage.Reference(leaf, index);
        if (link == null)
            return true;
        var key = KeyAt(leaf, index);
        if (from.SequenceCompareTo(key) > 0)
            return true;
        if (_bytesLeft <= 0 && !isFirst)
        {
            _from = key;
            return false;
        }
        if (!TreePage.HasTree(leaf, index))
        {
            Check(PageLink.LoadWhole(link));
        }
        else if (!Walk(PageLink.LoadWhole(link), from.SequenceEqual(key) ? _member : default))
        {
            (_from, _memberNext) = (key, _from);
            return false;
        }
        isFirst = false;
        return true;
    }

    private static int ChildOf(byte* page, ReadOnlySpan<byte> key)
    {
        var child = 0;
        while (child + 1 < Page.Count(page) && key.SequenceCompareTo(KeyAt(page, child + 1)) >= 0)
            child++;
        return child;
    }

    private static byte[] KeyAt(byte* page, int index)
    {
        var key = new byte[TreePage.KeyLength(page, index)];
        TreePage.CopyKey(page, index, key);
        return key;
    }

    private void Check(PageLink link)
    {
        var count = link.Reference.IsScratch ? 1 : _space.CheckPage(link.Reference, link.Checksum);
        _bytesLeft -= (long)count * Page.Bytes;
        if (!link.Reference.IsScratch)
            PagesChecked += count;
    }
}
