using System.Runtime.CompilerServices;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage;

/// <summary>
/// The state of all trees at one moment, which later writes do not change. Any thread, also several at a time. Keep it as long as needed and no longer: it
/// keeps pages from being reused. If snapshots together hold more memory than they may, the one that holds most ends, so that writers need not wait: all
/// members that read then throw a
/// <see cref="KvSnapshotTooOldException"/>. Dispose of it when no thread uses it or its cursors.
/// </summary>
/// <remarks>
/// Values are returned where they are stored. Such a span is valid until the snapshot, or the store, is disposed of; copy what has to live longer. After that
/// every member throws an <see cref="ObjectDisposedException"/>.
/// </remarks>
public sealed class KvSnapshot : IDisposable
{
    private readonly KvStore _store;
    private readonly ReadSnapshot _snapshot;
    private volatile bool _isDisposed;

    internal KvSnapshot(KvStore store, ReadSnapshot snapshot) => (_store, _snapshot) = (store, snapshot);

    /// <summary>The newest change in it.</summary>
    public Etag Etag
    {
        get
        {
            CheckOpen();
            return _snapshot.Etag;
        }
    }

    /// <summary>
    /// Whether the snapshot keeps so much from being reused that the store grows because of it: memory, and then it has ended, or parts of the file. Whoever
    /// holds snapshots for long looks at this now and then, and continues with a new one.
    /// </summary>
    public bool IsTooOld
    {
        get
        {
            CheckOpen();
            return _snapshot.IsTooOld;
        }
    }

    /// <summary>Finds the value of a key: in place, or a copy of a value that is compressed, or stored in two parts, as many of some KB are.</summary>
    /// <returns>Whether the key exists.</returns>
    /// <exception cref="ArgumentOutOfRangeException">The key is empty or too long.</exception>
    /// <exception cref="KvStoreDamagedException">What is on the disk is not what was written.</exception>
    public bool TryGet(KvTree tree, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value) => TryGet(tree, key, out value, out _);

    /// <summary>Finds the value of a key, likewise, and the etag of the change that set it.</summary>
    /// <inheritdoc cref="TryGet(KvTree, ReadOnlySpan{byte}, out ReadOnlySpan{byte})" path="/returns|/exception"/>
    [SkipLocalsInit]
    public bool TryGet(KvTree tree, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value, out Etag etag)
    {
        Check(tree);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        try
        {
            if (_snapshot.TryGet(TreeId.Kv, TreeKey.WriteWhole(buffer, tree.Number, key), out var stored))
            {
                value = KvValue.Read(stored, out etag);
                return true;
            }
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
        value = default;
        etag = default;
        return false;
    }

    /// <summary>A copy of the value of a key; null if the key does not exist.</summary>
    /// <inheritdoc cref="TryGet(KvTree, ReadOnlySpan{byte}, out ReadOnlySpan{byte})" path="/exception"/>
    public byte[]? Get(KvTree tree, ReadOnlySpan<byte> key) => TryGet(tree, key, out var value) ? value.ToArray() : null;

    /// <summary>The set of a key, which is empty if there is none.</summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is empty or too long.</exception>
    /// <exception cref="KvStoreDamagedException">What is on the disk is not what was written.</exception>
    [SkipLocalsInit]
    public KvSet GetSet(KvTree tree, scoped ReadOnlySpan<byte> key)
    {
        Check(tree);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        try
        {
            return _snapshot.TryGetSet(TreeKey.WriteWhole(buffer, tree.Number, key), out var stored) ? new KvSet(this, stored) : new KvSet(this, default);
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>
    /// The number of keys of a tree that have values, from one key to another. Nearly nothing is read for it: it takes microseconds for millions of keys, and
    /// longer only by what was changed since the last checkpoint.
    /// </summary>
    /// <param name="tree">The tree.</param>
    /// <param name="from">The first key, inclusive; empty: from the beginning.</param>
    /// <param name="to">The end, exclusive; empty: to the end.</param>
    /// <exception cref="ArgumentOutOfRangeException">A bound is more than one byte longer than a key may be.</exception>
    /// <exception cref="KvStoreDamagedException">What is on the disk is not what was written.</exception>
    [SkipLocalsInit]
    public long Count(KvTree tree, ReadOnlySpan<byte> from = default, ReadOnlySpan<byte> to = default)
    {
        Check(tree);
        Span<byte> lower = stackalloc byte[TreeKey.BytesMax], upper = stackalloc byte[TreeKey.BytesMax];
        return CountBetween(TreeKey.WriteStart(lower, tree.Number, from), TreeKey.WriteEnd(upper, tree.Number, to));
    }

    /// <summary>The same for the keys that begin with a prefix.</summary>
    /// <param name="tree">The tree.</param>
    /// <param name="prefix">What the keys begin with; empty: all.</param>
    /// <exception cref="ArgumentOutOfRangeException">The prefix is longer than a key may be.</exception>
    /// <exception cref="KvStoreDamagedException">What is on the disk is not what was written.</exception>
    [SkipLocalsInit]
    public long CountPrefix(KvTree tree, ReadOnlySpan<byte> prefix)
    {
        Check(tree);
        Span<byte> lower = stackalloc byte[TreeKey.BytesMax], upper = stackalloc byte[TreeKey.BytesMax];
        var first = TreeKey.Write(lower, tree.Number, prefix);
        return CountBetween(first, TreeKey.EndOfPrefix(upper, first));
    }

    /// <summary>The entries of a tree with keys from one key to another, to be iterated over once with <c>foreach</c>.</summary>
    /// <param name="tree">The tree.</param>
    /// <param name="from">The first key, inclusive; empty: from the beginning.</param>
    /// <param name="to">The end, exclusive; empty: to the end.</param>
    /// <param name="reverse">Begin with the last entry.</param>
    /// <exception cref="ArgumentOutOfRangeException">A bound is more than one byte longer than a key may be.</exception>
    public KvScan Scan(KvTree tree, ReadOnlySpan<byte> from = default, ReadOnlySpan<byte> to = default, bool reverse = false) =>
        new(OpenCursor(tree, from, to), reverse);

    /// <summary>The entries of a tree whose keys begin with a prefix, to be iterated over once with <c>foreach</c>.</summary>
    /// <param name="tree">The tree.</param>
    /// <param name="prefix">What the keys begin with; empty: all.</param>
    /// <param name="reverse">Begin with the last entry.</param>
    /// <exception cref="ArgumentOutOfRangeException">The prefix is longer than a key may be.</exception>
    public KvScan ScanPrefix(KvTree tree, ReadOnlySpan<byte> prefix, bool reverse = false) => new(OpenPrefix(TreeId.Kv, tree, prefix), reverse);

    /// <summary>A cursor over the entries of a tree with keys from one key to another, which moves in both directions. The caller disposes of it.</summary>
    /// <param name="tree">The tree.</param>
    /// <param name="from">The first key, inclusive; empty: from the beginning.</param>
    /// <param name="to">The end, exclusive; empty: to the end.</param>
    /// <exception cref="ArgumentOutOfRangeException">A bound is more than one byte longer than a key may be.</exception>
    public KvCursor OpenCursor(KvTree tree, ReadOnlySpan<byte> from = default, ReadOnlySpan<byte> to = default) => Open(TreeId.Kv, tree, from, to);

    /// <summary>
    /// The keys of a tree that have sets, with their sets, from one key to another, to be iterated over once with <c>foreach</c>. A key without a value is one
    /// of them too. Members of large sets are not read.
    /// </summary>
    /// <inheritdoc cref="Scan(KvTree, ReadOnlySpan{byte}, ReadOnlySpan{byte}, bool)" path="/param|/exception"/>
    public KvSetScan ScanSets(KvTree tree, ReadOnlySpan<byte> from = default, ReadOnlySpan<byte> to = default, bool reverse = false) =>
        new(Open(TreeId.Sets, tree, from, to), reverse);

    /// <summary>The same for the keys that begin with a prefix.</summary>
    /// <inheritdoc cref="ScanPrefix(KvTree, ReadOnlySpan{byte}, bool)" path="/param|/exception"/>
    public KvSetScan ScanSetsPrefix(KvTree tree, ReadOnlySpan<byte> prefix, bool reverse = false) => new(OpenPrefix(TreeId.Sets, tree, prefix), reverse);

    /// <summary>Releases the pages. A second call does nothing.</summary>
    public void Dispose()
    {
        _isDisposed = true;
        _snapshot.Dispose();
    }

    /// <exception cref="ObjectDisposedException">The snapshot or the store was disposed of.</exception>
    /// <exception cref="KvSnapshotTooOldException">The snapshot has ended, because it held most of the memory that snapshots may hold.</exception>
    internal void Check()
    {
        CheckOpen();
        if (_snapshot.HoldsTooMuchMemory)
            throw new KvSnapshotTooOldException(
                "The snapshot has ended, because snapshots held more memory than they may, and this one most. Dispose of it, and go on with a new one.");
    }

    private void CheckOpen()
    {
        ObjectDisposedException.ThrowIf(_isDisposed, this);
        _store.ThrowIfDisposed();
    }

    private long CountBetween(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        try
        {
            return (long)_snapshot.CountRange(TreeId.Kv, from, to);
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    [SkipLocalsInit]
    private KvCursor Open(TreeId stored, KvTree tree, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        Check(tree);
        Span<byte> lower = stackalloc byte[TreeKey.BytesMax], upper = stackalloc byte[TreeKey.BytesMax];
        var first = TreeKey.WriteStart(lower, tree.Number, from);
        return new KvCursor(this, tree, _snapshot.Cursor(stored, first, TreeKey.WriteEnd(upper, tree.Number, to)));
    }

    [SkipLocalsInit]
    private KvCursor OpenPrefix(TreeId stored, KvTree tree, ReadOnlySpan<byte> prefix)
    {
        Check(tree);
        Span<byte> lower = stackalloc byte[TreeKey.BytesMax], upper = stackalloc byte[TreeKey.BytesMax];
        var first = TreeKey.Write(lower, tree.Number, prefix);
        return new KvCursor(this, tree, _snapshot.Cursor(stored, first, TreeKey.EndOfPrefix(upper, first)));
    }

    private void Check(KvTree tree)
    {
        Check();
        ArgumentNullException.ThrowIfNull(tree);
        tree.ThrowUnlessOf(_store, nameof(tree));
    }
}
