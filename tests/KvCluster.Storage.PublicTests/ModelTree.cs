using System.Collections.Immutable;

namespace KvCluster.PublicTests;

/// <summary>What a tree has: a value and the etag of its change for each key, in the order of the keys.</summary>
internal sealed class ModelTree
{
    public static readonly ModelTree Empty = new(ImmutableSortedDictionary.Create<byte[], (byte[] Value, Etag Etag)>(Comparer<byte[]>.Create(Compare)));

    private readonly ImmutableSortedDictionary<byte[], (byte[] Value, Etag Etag)> _entries;

    private ModelTree(ImmutableSortedDictionary<byte[], (byte[] Value, Etag Etag)> entries) => _entries = entries;

    public int Count => _entries.Count;

    public IEnumerable<byte[]> Keys => _entries.Keys;

    /// <summary>The value of a key and the etag of its change; null if there is none.</summary>
    public (byte[] Value, Etag Etag)? Find(byte[] key) => _entries.TryGetValue(key, out var entry) ? entry : null;

    public ModelTree With(byte[] key, byte[] value, Etag etag) => new(_entries.SetItem(key, (value, etag)));

    public ModelTree Without(params IEnumerable<byte[]> keys) => new(_entries.RemoveRange(keys));

    /// <summary>Byte by byte; a prefix comes before longer keys.</summary>
    public static int Compare(byte[] one, byte[] other) => one.AsSpan().SequenceCompareTo(other);

    /// <summary>Whether a key is in the range from one key up to another. An empty one is no bound.</summary>
    public static bool IsBetween(byte[] key, byte[] from, byte[] to) => Compare(key, from) >= 0 && (to.Length == 0 || Compare(key, to) < 0);
}
