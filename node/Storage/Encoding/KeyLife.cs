namespace KvCluster.Storage.Encoding;

/// <summary>What ends a key besides a delete, as operations and leaf values have it (FORMAT.md, "Life of a key"). Pure; any thread.</summary>
/// <param name="ExpiryMilliseconds">The shard time at which the key expires, in milliseconds since 1970; 0 = never.</param>
/// <param name="Owner">The etag of the opening of the session with which the key ends; <see cref="Etag.None"/> = no session.</param>
internal readonly record struct KeyLife(ulong ExpiryMilliseconds, Etag Owner)
{
    /// <summary>The most bytes that the fields take, without the flags.</summary>
    public const int BytesMax = 3 * Varint.BytesMax;

    /// <summary>Flag of a key that expires.</summary>
    private const byte ExpiryFlag = 1;

    /// <summary>Flag of a key that a session owns.</summary>
    private const byte OwnerFlag = 2;

    /// <summary>Whether nothing but a delete ends the key.</summary>
    public bool IsUnlimited => ExpiryMilliseconds == 0 && Owner == Etag.None;

    /// <summary>Says which fields follow.</summary>
    public byte Flags => (byte)((ExpiryMilliseconds == 0 ? 0 : ExpiryFlag) | (Owner == Etag.None ? 0 : OwnerFlag));

    /// <summary>Whether this version knows all flags that are set.</summary>
    public static bool AreKnown(byte flags) => (flags & ~(ExpiryFlag | OwnerFlag)) == 0;

    /// <summary>Writes the fields, and returns their length.</summary>
    public int WriteTo(Span<byte> destination)
    {
        var count = ExpiryMilliseconds == 0 ? 0 : Varint.Write(destination, ExpiryMilliseconds);
        if (Owner == Etag.None)
            return count;
        count += Varint.Write(destination[count..], Owner.Epoch);
        return count + Varint.Write(destination[count..], Owner.Change);
    }

    /// <summary>Reads the fields that flags announce from the beginning of <paramref name="rest"/>, which is advanced. False if they are malformed.</summary>
    public static bool TryRead(ref ReadOnlySpan<byte> rest, byte flags, out KeyLife life)
    {
        var (expiry, epoch, change) = (0ul, 0ul, 0ul);
        var isWhole = ((flags & ExpiryFlag) == 0 || Varint.TryRead(ref rest, out expiry))
            && ((flags & OwnerFlag) == 0 || (Varint.TryRead(ref rest, out epoch) && Varint.TryRead(ref rest, out change)));
        life = new KeyLife(expiry, new Etag(epoch, change));
        return isWhole;
    }
}
