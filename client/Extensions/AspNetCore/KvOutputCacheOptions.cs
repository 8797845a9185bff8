namespace KvCluster.Extensions.AspNetCore;

/// <summary>The options of the output cache. They are read once, when the cache is made.</summary>
public sealed class KvOutputCacheOptions
{
    /// <summary>What all keys of the cache begin with in the cluster, and no others: 1 to 512 bytes of text.</summary>
    public string Prefix { get; set; } = "output/";

    /// <summary>
    /// The longest time of a call that reads or sets. Then the request goes on without the cache. Half a second is less than most callers notice; an election
    /// takes longer, and no request should wait for it.
    /// </summary>
    public TimeSpan Timeout { get; set; } = TimeSpan.FromMilliseconds(500);
}
