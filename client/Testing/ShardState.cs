using System.Collections.Immutable;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>Everything that a shard has, at one moment. Immutable, so whoever has one reads a snapshot.</summary>
internal sealed record ShardState
{
    /// <summary>The etag of the newest change. The first one is that of the leadership.</summary>
    public Etag Etag { get; init; } = new(1, 1);

    /// <summary>The keys in order.</summary>
    public ImmutableSortedSet<StoredKey> Keys { get; init; } = ImmutableSortedSet<StoredKey>.Empty.WithComparer(StoredKey.Order);

    /// <summary>The sets in the order of their keys.</summary>
    public ImmutableSortedSet<StoredSet> Sets { get; init; } = ImmutableSortedSet<StoredSet>.Empty.WithComparer(StoredSet.Order);

    /// <summary>The last number that was given under a prefix.</summary>
    public ImmutableDictionary<KvKey, ulong> Numbers { get; init; } = ImmutableDictionary<KvKey, ulong>.Empty;

    /// <summary>The keys that each session owns, by the etag of its opening.</summary>
    public ImmutableDictionary<Etag, ImmutableSortedSet<KvKey>> Owned { get; init; } = ImmutableDictionary<Etag, ImmutableSortedSet<KvKey>>.Empty;

    /// <summary>A key; null if it does not exist.</summary>
    public StoredKey? Find(KvKey key) => Keys.TryGetValue(StoredKey.At(key), out var found) ? found : null;

    /// <summary>A set; null if it does not exist.</summary>
    public StoredSet? FindSet(KvKey key) => Sets.TryGetValue(StoredSet.At(key), out var found) ? found : null;

    /// <summary>The keys of a range.</summary>
    public IEnumerable<StoredKey> Within(KeyBounds bounds, bool reverse = false) =>
        SortedRange.Of(Keys, bounds, static key => StoredKey.At(key), reverse);

    /// <summary>The number of keys of a range.</summary>
    public int CountWithin(KeyBounds bounds) => SortedRange.Count(Keys, bounds, static key => StoredKey.At(key));

    /// <summary>The sets of a range.</summary>
    public IEnumerable<StoredSet> SetsWithin(KeyBounds bounds) => SortedRange.Of(Sets, bounds, static key => StoredSet.At(key), reverse: false);
}
