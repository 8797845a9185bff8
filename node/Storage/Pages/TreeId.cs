namespace KvCluster.Storage.Pages;

/// <summary>The named trees of a data file: fixed places in the meta page (FORMAT.md, "Meta page"), which has room for sixteen.</summary>
internal enum TreeId : byte
{
    /// <summary>Key to leaf value (flags, etag, expiry, value).</summary>
    Kv = 0,

    /// <summary>Expiry time and key, in time's order.</summary>
    Expiry = 1,

    /// <summary>Members of multi-value keys.</summary>
    Sets = 2,

    /// <summary>Results of exactly-once calls.</summary>
    Sessions = 3,

    /// <summary>What the shard knows of itself.</summary>
    Meta = 4,
}
