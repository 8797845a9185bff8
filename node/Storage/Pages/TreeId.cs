namespace KvCluster.Storage.Pages;

/// <summary>The trees of a data file, each with a fixed position in the meta page (FORMAT.md, "Meta page"), which has space for sixteen.</summary>
internal enum TreeId : byte
{
    /// <summary>Key to leaf value (flags, etag, expiry, value).</summary>
    Kv = 0,

    /// <summary>Expiry time and etag of the keys that expire, in the order of time, to the key.</summary>
    Expiry = 1,

    /// <summary>Key to the members of its set (etag, count, members).</summary>
    Sets = 2,

    /// <summary>Results of exactly-once calls.</summary>
    Sessions = 3,

    /// <summary>Prefix to the last number that was given to a key under it.</summary>
    Meta = 4,

    /// <summary>Opening of a session and etag of a value to the key that ends with the session; opening to what its keys add up to.</summary>
    Owned = 5,
}
