namespace KvCluster.Client;

/// <summary>What a <see cref="KvCache"/> keeps.</summary>
public sealed class KvCacheOptions
{
    /// <summary>Keep no values, only keys and etags.</summary>
    public bool KeysOnly { get; init; }

    /// <summary>
    /// The maximum number of bytes of keys and values; with more the cache ends, because it could only keep a part, which would look like all. The default is
    /// 256 MiB. What .NET needs beside each entry, about 200 bytes, is not counted.
    /// </summary>
    public long BytesMax { get; init; } = 256L << 20;
}
