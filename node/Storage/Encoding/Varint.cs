namespace KvCluster.Storage.Encoding;

/// <summary>LEB128: seven bits per byte, least significant first. Pure; any thread.</summary>
internal static class Varint
{
    /// <summary>Bytes of the longest number.</summary>
    public const int BytesMax = 10;

    /// <summary>Writes a number and returns its length.</summary>
    public static int Write(Span<byte> destination, ulong value)
    {
        var count = 0;
        while (value >= 0x80)
        {
            destination[count++] = (byte)(value | 0x80);
            value >>= 7;
        }
        destination[count++] = (byte)value;
        return count;
    }

    /// <summary>Maps a signed difference to a number that is small when the difference is small in either direction (zigzag encoding).</summary>
    public static ulong Fold(ulong difference) => (difference << 1) ^ (ulong)((long)difference >> 63);

    /// <summary>The inverse of <see cref="Fold"/>.</summary>
    public static ulong Unfold(ulong folded) => (folded >> 1) ^ (0 - (folded & 1));

    /// <summary>Reads a number from the front and moves past it; false when it is truncated or longer than 64 bits.</summary>
    public static bool TryRead(ref ReadOnlySpan<byte> source, out ulong value)
    {
        value = 0;
        for (var index = 0; index < source.Length && index < BytesMax; index++)
        {
            var part = source[index];
            if (index == BytesMax - 1 && part > 1)
                return false;
            value |= (ulong)(part & 0x7F) << (7 * index);
            if (part < 0x80)
            {
                source = source[(index + 1)..];
                return true;
            }
        }
        return false;
    }
}
