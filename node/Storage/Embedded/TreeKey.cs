using System.Buffers.Binary;

namespace KvCluster.Storage;

/// <summary>
/// A key as the engine stores it: the number of its tree, four bytes, big-endian, and the caller's key (FORMAT.md, "Embedded store"). So the keys of a tree
/// are next to each other and in their own order, and pages store the number once, as part of the prefix of their keys. Pure; any thread.
/// </summary>
internal static class TreeKey
{
    /// <summary>Bytes of a tree's number.</summary>
    public const int NumberBytes = sizeof(uint);

    /// <summary>Size of a buffer for any key.</summary>
    public const int BytesMax = KvLimits.KeyBytesMax;

    /// <summary>Writes a key of a tree and returns it.</summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is too long.</exception>
    public static ReadOnlySpan<byte> Write(Span<byte> destination, uint tree, scoped ReadOnlySpan<byte> key)
    {
        if (key.Length > KvStoreLimits.KeyBytesMax)
            throw new ArgumentOutOfRangeException(nameof(key), key.Length, $"A key has at most {KvStoreLimits.KeyBytesMax} bytes.");
        BinaryPrimitives.WriteUInt32BigEndian(destination, tree);
        key.CopyTo(destination[NumberBytes..]);
        return destination[..(NumberBytes + key.Length)];
    }

    /// <summary>
    /// Writes the start of a range, or a place to seek. It has at most one byte more than a key, so that the least key after any key can be named. Nothing
    /// that long is stored, so such a bound is as good as the end of all keys that begin with its first bytes.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is too long.</exception>
    public static ReadOnlySpan<byte> WriteStart(Span<byte> destination, uint tree, scoped ReadOnlySpan<byte> key)
    {
        if (key.Length <= KvStoreLimits.KeyBytesMax)
            return Write(destination, tree, key);
        if (key.Length > KvStoreLimits.BoundBytesMax)
            throw new ArgumentOutOfRangeException(
                nameof(key), key.Length, $"The start or end of a range has at most {KvStoreLimits.BoundBytesMax} bytes: a key and one more.");
        return EndOfPrefix(destination, Write(destination, tree, key[..KvStoreLimits.KeyBytesMax]));
    }

    /// <summary>The same in an array of its own.</summary>
    public static byte[] StartBound(uint tree, ReadOnlySpan<byte> key) => WriteStart(stackalloc byte[BytesMax], tree, key).ToArray();

    /// <summary>A key in an array of its own, for what outlives a call.</summary>
    public static byte[] Bound(uint tree, ReadOnlySpan<byte> key) => Write(stackalloc byte[BytesMax], tree, key).ToArray();

    /// <summary>The same for a key that is to be stored or found, which has at least one byte.</summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is empty or too long.</exception>
    public static ReadOnlySpan<byte> WriteWhole(Span<byte> destination, uint tree, scoped ReadOnlySpan<byte> key) =>
        key.IsEmpty ? throw new ArgumentOutOfRangeException(nameof(key), 0, "A key has at least one byte.") : Write(destination, tree, key);

    /// <summary>
    /// Writes the end of a range, which does not belong to it. An empty key is the end of the tree: greater than all of its keys, and not greater than any of
    /// the next tree.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is too long.</exception>
    public static ReadOnlySpan<byte> WriteEnd(Span<byte> destination, uint tree, scoped ReadOnlySpan<byte> key) =>
        key.IsEmpty ? Write(destination, tree + 1, key) : WriteStart(destination, tree, key);

    /// <summary>The same in an array of its own.</summary>
    public static byte[] EndBound(uint tree, ReadOnlySpan<byte> key) => WriteEnd(stackalloc byte[BytesMax], tree, key).ToArray();

    /// <summary>
    /// The least key that is greater than all keys with a prefix. The prefix begins with the number of a tree, which is not the greatest number.
    /// </summary>
    public static ReadOnlySpan<byte> EndOfPrefix(Span<byte> destination, scoped ReadOnlySpan<byte> prefix)
    {
        var last = prefix.LastIndexOfAnyExcept((byte)0xFF);
        prefix[..(last + 1)].CopyTo(destination);
        destination[last]++;
        return destination[..(last + 1)];
    }

    /// <summary>The number of a stored key's tree.</summary>
    public static uint TreeOf(ReadOnlySpan<byte> key) => BinaryPrimitives.ReadUInt32BigEndian(key);
}
