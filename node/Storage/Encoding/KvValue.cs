namespace KvCluster.Storage.Encoding;

/// <summary>
/// The content of a leaf entry of the tree <c>kv</c> (FORMAT.md, "Entries of the trees"): flags, the etag of the change that wrote it, the life of the key as
/// flagged, the value. Pure; any thread.
/// </summary>
internal static class KvValue
{
    /// <summary>The most bytes that a header takes.</summary>
    public const int HeaderBytesMax = 1 + (2 * Varint.BytesMax) + KeyLife.BytesMax;

    /// <summary>The value, and the etag of the change that wrote it. Zero-copy.</summary>
    public static ReadOnlySpan<byte> Read(ReadOnlySpan<byte> stored, out Etag etag) => Read(stored, out etag, out _);

    /// <summary>The value, its etag, and the life of its key. Zero-copy.</summary>
    public static ReadOnlySpan<byte> Read(ReadOnlySpan<byte> stored, out Etag etag, out KeyLife life)
    {
        if (stored.IsEmpty)
            throw Malformed();
        var flags = stored[0];
        var rest = stored[1..];
        life = default;
        if (!Varint.TryRead(ref rest, out var epoch)
            || !Varint.TryRead(ref rest, out var change) || (flags != 0 && !KeyLife.TryRead(ref rest, flags, out life)))
            throw Malformed();
        etag = new Etag(epoch, change);
        return rest;
    }

    /// <summary>Writes the header before the value and returns its length, at most <see cref="HeaderBytesMax"/>.</summary>
    public static int WriteHeader(Span<byte> destination, Etag etag, in KeyLife life)
    {
        destination[0] = life.Flags;
        var count = 1;
        count += Varint.Write(destination[count..], etag.Epoch);
        count += Varint.Write(destination[count..], etag.Change);
        return count + life.WriteTo(destination[count..]);
    }

    private static CorruptStoreException Malformed() => new("A stored value is shorter than its header.");
}
