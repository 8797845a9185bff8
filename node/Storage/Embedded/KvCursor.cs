using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage;

/// <summary>
/// Moves over the entries of a tree in the order of their keys, in both directions, within the bounds with which it was opened. Used by one thread at a time
/// and disposed of before its snapshot. It starts outside of the entries: <see cref="MoveNext"/> goes to the first one, <see cref="MovePrevious"/> to the last.
/// </summary>
/// <remarks>
/// Spans are valid until the cursor moves (keys) or the snapshot is disposed of (values). After that every member throws an
/// <see cref="ObjectDisposedException"/>. A read that finds damage throws a <see cref="KvStoreDamagedException"/>.
/// </remarks>
public sealed class KvCursor : IDisposable
{
    private readonly KvSnapshot _snapshot;
    private readonly KvTree _tree;
    private readonly Cursor _cursor;
    private bool _isDisposed;

    internal KvCursor(KvSnapshot snapshot, KvTree tree, Cursor cursor) => (_snapshot, _tree, _cursor) = (snapshot, tree, cursor);

    /// <summary>The key.</summary>
    /// <exception cref="InvalidOperationException">The cursor is not at an entry.</exception>
    public ReadOnlySpan<byte> Key
    {
        get
        {
            Check();
            return _cursor.Key[TreeKey.NumberBytes..];
        }
    }

    /// <summary>The value: in place, or a copy of one that is stored in two parts or compressed.</summary>
    /// <exception cref="InvalidOperationException">The cursor is not at an entry.</exception>
    public ReadOnlySpan<byte> Value => Current.Value;

    /// <summary>The etag of the change that set the value.</summary>
    /// <exception cref="InvalidOperationException">The cursor is not at an entry.</exception>
    public Etag Etag
    {
        get
        {
            Check();
            try
            {
                _ = KvValue.Read(_cursor.Beginning(KvValue.HeaderBytesMax), out var etag);
                return etag;
            }
            catch (CorruptStoreException damage)
            {
                throw StoreErrors.DamagedBy(damage);
            }
        }
    }

    /// <summary>Key, value and etag together.</summary>
    /// <exception cref="InvalidOperationException">The cursor is not at an entry.</exception>
    public KvEntry Current
    {
        get
        {
            Check();
            try
            {
                var value = KvValue.Read(_cursor.Value, out var etag);
                return new KvEntry(_cursor.Key[TreeKey.NumberBytes..], value, etag);
            }
            catch (CorruptStoreException damage)
            {
                throw StoreErrors.DamagedBy(damage);
            }
        }
    }

    /// <summary>Of a cursor over keys with sets: the key and its set.</summary>
    internal KvSetEntry CurrentSet
    {
        get
        {
            Check();
            try
            {
                return new KvSetEntry(_cursor.Key[TreeKey.NumberBytes..], new KvSet(_snapshot, _cursor.Set));
            }
            catch (CorruptStoreException damage)
            {
                throw StoreErrors.DamagedBy(damage);
            }
        }
    }

    /// <summary>Moves to the next entry; false at the end. From there <see cref="MovePrevious"/> moves back to the last one.</summary>
    public bool MoveNext()
    {
        Check();
        try
        {
            return _cursor.MoveNext();
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>Moves to the previous entry; false before the first one. From there <see cref="MoveNext"/> moves to the first one.</summary>
    public bool MovePrevious()
    {
        Check();
        try
        {
            return _cursor.MovePrevious();
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>
    /// Moves to the entry with this key, or if there is none to the first one after it. False if there is none within the bounds; <see cref="MovePrevious"/>
    /// then moves to the last one.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is too long.</exception>
    [SkipLocalsInit]
    public bool Seek(ReadOnlySpan<byte> key)
    {
        Check();
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        try
        {
            return _cursor.Seek(TreeKey.WriteStart(buffer, _tree.Number, key));
        }
        catch (CorruptStoreException damage)
        {
            throw StoreErrors.DamagedBy(damage);
        }
    }

    /// <summary>Ends it. A second call does nothing.</summary>
    public void Dispose()
    {
        _isDisposed = true;
        _cursor.Dispose();
    }

    private void Check()
    {
        ObjectDisposedException.ThrowIf(_isDisposed, this);
        _snapshot.Check();
    }
}

/// <summary>An entry of a tree. Its spans are valid as long as those of the <see cref="KvCursor"/> that it is from.</summary>
public readonly ref struct KvEntry
{
    internal KvEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag)
    {
        Key = key;
        Value = value;
        Etag = etag;
    }

    /// <summary>The key.</summary>
    public ReadOnlySpan<byte> Key { get; }

    /// <summary>The value: in place, or a copy of one that is stored in two parts or compressed.</summary>
    public ReadOnlySpan<byte> Value { get; }

    /// <summary>The etag of the change that set the value.</summary>
    public Etag Etag { get; }

    /// <summary>Key and value.</summary>
    public void Deconstruct(out ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        key = Key;
        value = Value;
    }
}

/// <summary>Entries to be iterated over once with <c>foreach</c>, which disposes of the cursor.</summary>
public readonly struct KvScan
{
    private readonly KvCursor _cursor;
    private readonly bool _isReverse;

    internal KvScan(KvCursor cursor, bool isReverse) => (_cursor, _isReverse) = (cursor, isReverse);

    /// <summary>Called by <c>foreach</c>.</summary>
    public Enumerator GetEnumerator() => new(_cursor, _isReverse);

    /// <summary>Used by <c>foreach</c>.</summary>
    public readonly struct Enumerator : IDisposable
    {
        private readonly KvCursor _cursor;
        private readonly bool _isReverse;

        internal Enumerator(KvCursor cursor, bool isReverse) => (_cursor, _isReverse) = (cursor, isReverse);

        /// <summary>The entry.</summary>
        public KvEntry Current => _cursor.Current;

        /// <summary>Moves on; false at the end.</summary>
        public bool MoveNext() => _isReverse ? _cursor.MovePrevious() : _cursor.MoveNext();

        /// <summary>Ends the cursor.</summary>
        public void Dispose() => _cursor.Dispose();
    }
}
