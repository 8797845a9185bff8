namespace KvCluster.Storage.Encoding;

/// <summary>
/// The content of a leaf entry of the tree <c>kv</c> (FORMAT.md, "Leaf value of kv"): flags, the etag of the change that wrote it, the expiry if flagged,
/// the value. Pure; any thread.
/// </summary>
internal static class KvValue
{
    /// <summary>The value is preceded by an expiry.</summary>
    public const byte ExpiryFlag = 1;

    /// <summary>The most bytes that a header takes.</summary>
    public const int HeaderBytesMax = 1 + (3 * Varint.BytesMax);

    /// <summary>The value, and the etag of the change that wrote it. Zero-copy.</summary>
    public static ReadOnlySpan<byte> Read(ReadOnlySpan<byte> stored, out Etag etag) => Read(stored, out etag, out _);

    /// <summary>The value, its etag, and its expiry in milliseconds of shard time (0 = never). Zero-copy.</summary>
    public static ReadOnlySpan<byte> Read(ReadOnlySpan<byte> stored, out Etag etag, out ulong expiryMilliseconds)
    {
        expiryMilliseconds = 0;
        if (stored.IsEmpty)
            throw Malformed();
        var flags = stored[0];
        var rest = stored[1..];
        if (!Varint.TryRead(ref rest, out var epoch) || !Varint.TryRead(ref rest, out var change))
            throw Malformed();
        if ((flags & ExpiryFlag) != 0 && !Varint.TryRead(ref rest, out expiryMilliseconds))
            throw Malformed();
        etag = new Etag(epoch, change);
        return rest;
    }

    /// <summary>Writes the header before the value and returns its length, at most <see cref="HeaderBytesMax"/>.</summary>
    public static int WriteHeader(Span<byte> destination, Etag etag, ulong expiryMilliseconds)
    {
        destination[0] = expiryMilliseconds == 0 ? (byte)0 : ExpiryFlag;
        var count = 1;
        count += Varint.Write(destination[count..], etag.Epoch);
        count += Varint.Write(destination[count..], etag.Change);
        if (expiryMilliseconds != 0)
            count += Varint.Write(destination[count..], expiryMilliseconds);
        return count;
    }

    private static CorruptStoreException Malformed() => new("A stored value is shorter than its header.");
}
