namespace KvCluster.Extensions.Caching;

/// <summary>The options of the hybrid cache. They are read once, when the cache is made.</summary>
public sealed class KvHybridCacheOptions
{
    /// <summary>What all keys of the cache begin with in the cluster, and no others: 1 to 512 bytes of text.</summary>
    public string Prefix { get; set; } = "hybrid/";

    /// <summary>
    /// The longest time of a call that reads or sets. Then the caller goes on without the cluster. Half a second is less than most callers notice; an election
    /// takes longer, and no request should wait for it.
    /// </summary>
    public TimeSpan Timeout { get; set; } = TimeSpan.FromMilliseconds(500);

    /// <summary>How long an entry stays for which its caller says nothing. As in the hybrid cache of .NET.</summary>
    public TimeSpan Expiration { get; set; } = TimeSpan.FromMinutes(5);

    /// <summary>
    /// How long an entry stays at most, whatever its caller says. The cluster remembers for a day longer that a tag was removed, so that no entry from before
    /// comes back.
    /// </summary>
    public TimeSpan ExpirationMax { get; set; } = TimeSpan.FromDays(30);

    /// <summary>The bytes of entries in the memory of this process. What is over goes, and is read from the cluster again.</summary>
    public long LocalBytesMax { get; set; } = 64 << 20;

    /// <summary>
    /// Entries in the memory of this process are not used while a shard has told nothing for so long, because what it would have told may be that they changed.
    /// Shards say once a second that nothing did.
    /// </summary>
    public TimeSpan LocalSilenceMax { get; set; } = TimeSpan.FromSeconds(5);
}
