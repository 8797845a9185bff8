using KvCluster.Client;

namespace KvCluster.Extensions.Caching;

/// <summary>The options of the distributed cache. They are read once, when the cache is made.</summary>
public sealed class KvDistributedCacheOptions
{
    /// <summary>What all keys of the cache begin with in the cluster, and no others: 1 to 512 bytes of text.</summary>
    public string Prefix { get; set; } = "cache/";

    /// <summary>
    /// The longest time of a call that reads or sets. Then the caller goes on without the cache. Half a second is less than most callers notice; an election
    /// takes longer, and no request should wait for it.
    /// </summary>
    public TimeSpan Timeout { get; set; } = TimeSpan.FromMilliseconds(500);

    /// <summary>
    /// How up to date reads are; null means <see cref="KvClientOptions.Read"/>. With <see cref="KvReadMode.Stale"/> entries are also found while their shard
    /// has no leader, and those that were just removed may be, too.
    /// </summary>
    public KvReadMode? Read { get; set; }

    /// <summary>The sliding expiry of entries that are set without any, so that no entry stays for ever.</summary>
    public TimeSpan DefaultSlidingExpiration { get; set; } = TimeSpan.FromMinutes(20);
}
