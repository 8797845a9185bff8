using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// One published state of all trees. Any thread, and it may be held across awaits. The spans that it returns are valid until it is disposed. Opening it,
/// point reads and counts allocate nothing. It pins pages, so do not hold it longer than necessary.
/// </summary>
/// <exception cref="CorruptStoreException">From any read: a page is not what was written, and the shard's replica must stop.</exception>
internal readonly unsafe struct ReadSnapshot : IDisposable
{
    /// <summary>Keeps the memory alive that the pages are in, even if the store is closed meanwhile.</summary>
    private readonly PublishedRoots _roots;
    private readonly StoreRoot _root;
    private readonly int _slot;
    private readonly ulong _ticket;

    internal ReadSnapshot(PublishedRoots roots, StoreRoot root, int slot, ulong ticket)
    {
        _roots = roots;
        _root = root;
        _slot = slot;
        _ticket = ticket;
    }

    /// <summary>The last change in it.</summary>
    public Etag Etag => _root.Etag;

    /// <summary>
    /// Whether the snapshot keeps more memory from being reused than it may. Long-running holders should end it soon and continue with a new one. Any thread.
    /// </summary>
    public bool IsTooOld => _roots.Readers.MustEnd(_slot, _ticket);

    /// <summary>
    /// Whether the snapshot had to end because of the memory that it holds. What it has returned stays valid, but nothing more should be read with it. Any
    /// thread.
    /// </summary>
    public bool HoldsTooMuchMemory => _roots.Readers.HoldsTooMuchMemory(_slot, _ticket);

    internal StoreRoot Root => _root;

    /// <summary>Number of keys in a tree.</summary>
    public ulong Count(TreeId tree) => _root.Trees[(int)tree].Count;

    /// <summary>The number of keys of a tree from one (empty: the first) up to another, which is not counted (empty: the end).</summary>
    /// <inheritdoc cref="RangeCount" path="/remarks"/>
    public ulong CountRange(TreeId tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        fixed (TreeRoot* root = &_root.Trees[(int)tree])
            return RangeCount.Of(_roots.Space, root, from, to);
    }

    /// <summary>The value of a key: in place, but for a divided or compressed value, of which it is a copy.</summary>
    public bool TryGet(TreeId tree, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        fixed (TreeRoot* root = &_root.Trees[(int)tree])
            return Lookup.TryGet(_roots.Space, root, key, out value);
    }

    /// <summary>
    /// Has the disk begin to read the page at which a search for a key would wait for it: mostly the leaf. For many keys that are read soon, which then do not
    /// wait one after the other.
    /// </summary>
    public void BeginRead(TreeId tree, ReadOnlySpan<byte> key)
    {
        fixed (TreeRoot* root = &_root.Trees[(int)tree])
            Lookup.BeginRead(_roots.Space, root, key);
    }

    /// <summary>The set of a key. Valid as long as the snapshot.</summary>
    public bool TryGetSet(scoped ReadOnlySpan<byte> key, out StoredSet set)
    {
        fixed (TreeRoot* root = &_root.Trees[(int)TreeId.Sets])
        {
            var cell = Lookup.Find(_roots.Space, root, key);
            set = cell == null ? default : new StoredSet(_roots.Space, cell);
            return cell != null;
        }
    }

    /// <summary>
    /// A cursor over the keys from <paramref name="lower"/> (inclusive; empty: the first) to <paramref name="upper"/> (exclusive; empty: the end). Dispose
    /// it before the snapshot.
    /// </summary>
    public Cursor Cursor(TreeId tree, ReadOnlySpan<byte> lower = default, ReadOnlySpan<byte> upper = default) =>
        new(_roots.Space, _root.Trees[(int)tree], lower, upper);

    /// <summary>Releases the pages. A second call does nothing.</summary>
    public void Dispose() => _roots.Readers.Leave(_slot, _ticket);
}
