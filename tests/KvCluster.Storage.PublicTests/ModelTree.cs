using System.Collections.Immutable;

namespace KvCluster.PublicTests;

/// <summary>
/// What a tree has: a value and the etag of its change for each key, and sets with the etags of their last changes, in the order of the keys.
/// </summary>
internal sealed class ModelTree
{
    private static readonly Comparer<byte[]> Order = Comparer<byte[]>.Create(Compare);

    public static readonly ModelTree Empty = new(
        ImmutableSortedDictionary.Create<byte[], (byte[] Value, Etag Etag)>(Order),
        ImmutableSortedDictionary.Create<byte[], (ImmutableSortedSet<byte[]> Members, Etag Etag)>(Order));

    private readonly ImmutableSortedDictionary<byte[], (byte[] Value, Etag Etag)> _entries;
    private readonly ImmutableSortedDictionary<byte[], (ImmutableSortedSet<byte[]> Members, Etag Etag)> _sets;

    private ModelTree(
        ImmutableSortedDictionary<byte[], (byte[] Value, Etag Etag)> entries,
        ImmutableSortedDictionary<byte[], (ImmutableSortedSet<byte[]> Members, Etag Etag)> sets) =>
        (_entries, _sets) = (entries, sets);

    public int Count => _entries.Count;

    public IEnumerable<byte[]> Keys => _entries.Keys;

    /// <summary>The keys that have sets.</summary>
    public IEnumerable<byte[]> SetKeys => _sets.Keys;

    /// <summary>The value of a key and the etag of its change; null if there is none.</summary>
    public (byte[] Value, Etag Etag)? Find(byte[] key) => _entries.TryGetValue(key, out var entry) ? entry : null;

    /// <summary>The set of a key, which is empty if there is none, and the etag of its last change.</summary>
    public (ImmutableSortedSet<byte[]> Members, Etag Etag) FindSet(byte[] key) =>
        _sets.TryGetValue(key, out var set) ? set : (ImmutableSortedSet.Create<byte[]>(Order), Etag.None);

    public ModelTree With(byte[] key, byte[] value, Etag etag) => new(_entries.SetItem(key, (value, etag)), _sets);

    public ModelTree Without(params IEnumerable<byte[]> keys) => new(_entries.RemoveRange(keys), _sets);

    /// <summary>With other members in a set. What changes none of them leaves the etag as it was.</summary>
    public ModelTree WithSet(byte[] key, Func<ImmutableSortedSet<byte[]>, ImmutableSortedSet<byte[]>> change, Etag etag)
    {
        var (members, last) = FindSet(key);
        var changed = change(members);
        return new ModelTree(_entries, changed.IsEmpty ? _sets.Remove(key) : _sets.SetItem(key, (changed, changed.Count == members.Count ? last : etag)));
    }

    /// <summary>Byte by byte; a prefix comes before longer keys.</summary>
    public static int Compare(byte[] one, byte[] other) => one.AsSpan().SequenceCompareTo(other);

    /// <summary>Whether a key is in the range from one key up to another. An empty one is no bound.</summary>
    public static bool IsBetween(byte[] key, byte[] from, byte[] to) => Compare(key, from) >= 0 && (to.Length == 0 || Compare(key, to) < 0);
}
