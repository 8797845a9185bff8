using System.Collections.Immutable;

namespace KvCluster.Client;

/// <summary>
/// What a <see cref="KvCache"/> had at one moment: of each shard the state at one etag, of different shards at different moments. Immutable; any thread.
/// </summary>
public sealed class KvCacheView
{
    internal static readonly KvCacheView Nothing =
        new(isComplete: false, ImmutableSortedDictionary<KvKey, KvEntry>.Empty, ImmutableSortedDictionary<uint, ShardPosition>.Empty, revision: 0);

    private readonly ImmutableSortedDictionary<KvKey, KvEntry> _entries;
    private readonly ImmutableSortedDictionary<uint, ShardPosition> _positions;

    internal KvCacheView(
        bool isComplete, ImmutableSortedDictionary<KvKey, KvEntry> entries, ImmutableSortedDictionary<uint, ShardPosition> positions, long revision) =>
        (IsComplete, _entries, _positions, Revision) = (isComplete, entries, positions, revision);

    /// <summary>Whether it has all entries. False only until the cache has read them the first time; the view has none until then.</summary>
    public bool IsComplete { get; }

    /// <summary>The entries, in key order.</summary>
    public IReadOnlyDictionary<KvKey, KvEntry> Entries => _entries;

    /// <summary>Up to where it has the changes of each shard that the prefix has a part of.</summary>
    public IEnumerable<ShardPosition> Positions => _positions.Values;

    /// <summary>Counts the changes of entries.</summary>
    internal long Revision { get; }

    /// <summary>Looks for an entry.</summary>
    /// <param name="key">The key, with the prefix.</param>
    /// <param name="entry">The entry; default if there is none.</param>
    /// <returns>Whether there is one. False also while the view is not complete.</returns>
    public bool TryGet(KvKey key, out KvEntry entry) => _entries.TryGetValue(key, out entry);

    /// <summary>Up to where it has the changes of a shard; null if it does not know the shard.</summary>
    /// <param name="shard">The shard's id.</param>
    public ShardPosition? PositionOf(uint shard) => _positions.TryGetValue(shard, out var position) ? position : null;
}
