namespace KvCluster.Storage;

/// <summary>Keys with their sets, to be iterated over once with <c>foreach</c>, which disposes of the cursor. By one thread.</summary>
/// <remarks>A read that finds damage throws a <see cref="KvStoreDamagedException"/>.</remarks>
public readonly struct KvSetScan
{
    private readonly KvCursor _cursor;
    private readonly bool _isReverse;

    /// <param name="cursor">Over the tree with the sets. It belongs to the scan.</param>
    /// <param name="isReverse">Whether the scan begins with the last key.</param>
    internal KvSetScan(KvCursor cursor, bool isReverse) => (_cursor, _isReverse) = (cursor, isReverse);

    /// <summary>Called by <c>foreach</c>.</summary>
    public Enumerator GetEnumerator() => new(_cursor, _isReverse);

    /// <summary>Used by <c>foreach</c>.</summary>
    public readonly struct Enumerator : IDisposable
    {
        private readonly KvCursor _cursor;
        private readonly bool _isReverse;

        internal Enumerator(KvCursor cursor, bool isReverse) => (_cursor, _isReverse) = (cursor, isReverse);

        /// <summary>The key and its set.</summary>
        public KvSetEntry Current => _cursor.CurrentSet;

        /// <summary>Moves on; false at the end.</summary>
        public bool MoveNext() => _isReverse ? _cursor.MovePrevious() : _cursor.MoveNext();

        /// <summary>Ends the cursor.</summary>
        public void Dispose() => _cursor.Dispose();
    }
}

/// <summary>A key of a tree and its set, which has at least one member.</summary>
public readonly ref struct KvSetEntry
{
    internal KvSetEntry(ReadOnlySpan<byte> key, KvSet set)
    {
        Key = key;
        Set = set;
    }

    /// <summary>The key. Valid until the scan moves on.</summary>
    public ReadOnlySpan<byte> Key { get; }

    /// <summary>The set. Valid until the snapshot is disposed of.</summary>
    public KvSet Set { get; }

    /// <summary>Key and set.</summary>
    public void Deconstruct(out ReadOnlySpan<byte> key, out KvSet set)
    {
        key = Key;
        set = Set;
    }
}
