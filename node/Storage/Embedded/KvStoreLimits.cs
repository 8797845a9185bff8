namespace KvCluster.Storage;

/// <summary>The limits of a <see cref="KvStore"/>, in bytes unless the name says otherwise. Whatever exceeds one is refused before anything changes.</summary>
public static class KvStoreLimits
{
    /// <summary>Longest key. A key has at least one byte. The engine's limit less the number of the tree, which precedes each key.</summary>
    public const int KeyBytesMax = KvLimits.KeyBytesMax - TreeKey.NumberBytes;

    /// <summary>
    /// Longest start or end of a range, or place to seek: one byte more than a key, so that the least key after any key can be named, which is the key and a
    /// zero byte.
    /// </summary>
    public const int BoundBytesMax = KeyBytesMax + 1;

    /// <summary>Longest value. A value may be empty.</summary>
    public const int ValueBytesMax = KvLimits.ValueBytesMax;

    /// <summary>
    /// Longest member of a set. A member has at least one byte. Seven of the longest fit into a page, so that the tree of a large set stays flat.
    /// </summary>
    public const int MemberBytesMax = 1_024;

    /// <summary>Largest batch, in bytes of its encoded operations and conditions. An operation takes at most 22 bytes more than its key and value.</summary>
    public const int BatchBytesMax = KvLimits.WriteBytesMax;

    /// <summary>Most operations of a batch, and most conditions.</summary>
    public const int BatchOperationsMax = KvLimits.KeysMax;

    /// <summary>Longest name of a tree, in bytes of UTF-8. A name has at least one character.</summary>
    public const int TreeNameBytesMax = 255;

    /// <summary>Most trees that exist at a time. Each takes some hundred bytes of memory.</summary>
    public const int TreesMax = 10_000;
}
