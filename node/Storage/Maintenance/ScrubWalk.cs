using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// Goes through all pages of the file that the published trees reach, in key order and in steps, and compares their checksums whether they were touched or
/// not. Between two steps it holds nothing: the next one goes on at a key, in the state published then. One thread at a time; any.
/// </summary>
internal sealed unsafe class ScrubWalk(PageStore pages)
{
    private readonly PageSpace _space = pages.Space;
    private int _tree;
    private byte[] _from = [];
    private long _bytesLeft;

    /// <summary>Pages of the file that were compared so far, of all passes.</summary>
    public long PagesChecked { get; private set; }

    /// <summary>Goes on for about so many bytes; true: all trees are through, and the next step begins anew.</summary>
    /// <exception cref="CorruptStoreException">A page is not what its parent refers to.</exception>
    /// <exception cref="SnapshotLimitException">As many are open as may be; the step can be tried again.</exception>
    public bool Step(long bytesMax)
    {
        using var snapshot = pages.OpenSnapshot();
        for (_bytesLeft = bytesMax; _tree < StoreRoot.TreesMax; _tree++, _from = [])
        {
            var root = snapshot.Root.Trees[_tree];
            if (root.Reference != 0 && !Walk(root.Reference, root.Checksum, _from))
                return false;
        }
        _tree = 0;
        return true;
    }

    /// <summary>False: the step's bytes are used up, and the next one is to go on at <see cref="_from"/>, which is behind at least one leaf or large value.</summary>
    private bool Walk(ulong reference, uint checksum, ReadOnlySpan<byte> from)
    {
        Check(reference, checksum);
        var page = _space.ResolveNode(reference, &checksum);
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
            var child = TreePage.Child(page, i);
            // As readers do: with a reference to the file its checksum is found.
            var childReference = Volatile.Read(ref *(ulong*)child);
            if (!Walk(childReference, *(uint*)(child + sizeof(ulong)), i == first ? from : default))
                return false;
        }
        return true;
    }

    /// <summary>A leaf may refer to gigabytes of values.</summary>
    private bool WalkValues(byte* leaf, ReadOnlySpan<byte> from)
    {
        var isFirst = true;
        for (var i = 0; i < Page.Count(leaf); i++)
        {
            if (!TreePage.IsOverflow(leaf, i, out var value))
                continue;
            var key = KeyAt(leaf, i);
            if (from.SequenceCompareTo(key) > 0)
                continue;
            if (_bytesLeft <= 0 && !isFirst)
            {
                _from = key;
                return false;
            }
            CheckChild(value);
            isFirst = false;
        }
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

    private void CheckChild(byte* child)
    {
        var reference = Volatile.Read(ref *(ulong*)child);
        Check(reference, *(uint*)(child + sizeof(ulong)));
    }

    private void Check(ulong reference, uint checksum)
    {
        var count = PageSpace.IsScratch(reference) ? 1 : _space.CheckPage(reference, checksum);
        _bytesLeft -= (long)count * Page.Bytes;
        if (!PageSpace.IsScratch(reference))
            PagesChecked += count;
    }
}
