using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>What is special about an <see cref="InMemoryKvClient"/>.</summary>
public sealed class InMemoryKvOptions
{
    /// <summary>
    /// The clock by which keys and sessions live, and watches send bookmarks. A test that passes a clock of its own lets an hour pass at once. Timers that are
    /// due run on the thread that advances it.
    /// </summary>
    public TimeProvider Time { get; init; } = TimeProvider.System;

    /// <summary>
    /// The keys at which a further shard begins, so that a test meets what depends on shards: without any, all keys are of one shard, and no call is refused
    /// with the reason SHARDS_DIFFER.
    /// </summary>
    public IReadOnlyList<KvKey> ShardBounds { get; init; } = [];

    /// <summary>
    /// How many changes each shard keeps for watches. One that is to begin before them, or lags further behind, ends with a <see cref="KvCompactedException"/>.
    /// The default is enough for tests that are not about that.
    /// </summary>
    public int ChangesKept { get; init; } = 10_000;
}
