using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// One published state of all trees. Any thread, also held across awaits; spans that it gave are valid until it is disposed. Opening and
/// point reads allocate nothing. It pins pages: not to be held longer than needed.
/// </summary>
/// <exception cref="CorruptStoreException">From any read: a page is not what was written; the shard's replica must stop.</exception>
internal readonly unsafe struct ReadSnapshot : IDisposable
{
    private readonly PageStore _store;
    private readonly StoreRoot _root;
    private readonly int _slot;
    private readonly ulong _ticket;

    internal ReadSnapshot(PageStore store, StoreRoot root, int slot, ulong ticket)
    {
        _store = store;
        _root = root;
        _slot = slot;
        _ticket = ticket;
    }

    /// <summary>The last change in it.</summary>
    public UInt128 Etag => _root.Etag;

    /// <summary>
    /// It keeps more memory from being reused than it may: who holds it for long ends it soon, and goes on with another. Any thread.
    /// </summary>
    public bool IsTooOld => _store.MustEnd(_slot, _ticket);

    internal StoreRoot Root => _root;

    /// <summary>Number of keys in a tree.</summary>
    public ulong Count(TreeId tree) => _root.Trees[(int)tree].Count;

    /// <summary>The value of a key, where it lies.</summary>
    public bool TryGet(TreeId tree, ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        fixed (TreeRoot* root = &_root.Trees[(int)tree])
            return Lookup.TryGet(_store.Space, root, key, out value);
    }

    /// <summary>A cursor over the keys from <paramref name="lower"/> (inclusive; empty: the first) to <paramref name="upper"/> (exclusive; empty: the end).
    /// To be disposed before the snapshot.</summary>
    public Cursor Cursor(TreeId tree, ReadOnlySpan<byte> lower = default, ReadOnlySpan<byte> upper = default) =>
        new(_store.Space, _root.Trees[(int)tree], lower, upper);

    /// <summary>Lets go of the pages. A second time does nothing.</summary>
    public void Dispose() => _store.CloseSnapshot(_slot, _ticket);
}
