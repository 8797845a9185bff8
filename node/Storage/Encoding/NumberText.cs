using System.Buffers;
using System.Buffers.Text;

namespace KvCluster.Storage.Encoding;

/// <summary>
/// Numbers as values and in keys: signed decimal text, and the 20 digits at the end of a numbered key. Whether an increment overflows is looked at in
/// <c>RequestCheck</c>. Pure; any thread.
/// </summary>
internal static class NumberText
{
    /// <summary>Digits of the number at the end of a numbered key, enough for all of 64 bits.</summary>
    public const int KeyDigits = 20;

    /// <summary>The most bytes of a value that is a number: a sign and 19 digits.</summary>
    public const int ValueBytesMax = 20;

    /// <summary>Reads the value of a key as the decimal text of a signed 64-bit number: digits, perhaps behind a minus sign.</summary>
    public static bool TryRead(ReadOnlySpan<byte> value, out long number)
    {
        number = 0;
        return value.Length is > 0 and <= ValueBytesMax && value[0] != '+' && Utf8Parser.TryParse(value, out number, out var read) && read == value.Length;
    }

    /// <summary>Writes a number as a value and returns its length.</summary>
    public static int Write(Span<byte> destination, long number)
    {
        _ = Utf8Formatter.TryFormat(number, destination[..ValueBytesMax], out var length);
        return length;
    }

    /// <summary>Divides a key into a prefix and the number behind it; false if it does not end with one.</summary>
    public static bool TrySplitKey(ReadOnlySpan<byte> key, out ReadOnlySpan<byte> prefix, out ulong number)
    {
        prefix = default;
        number = 0;
        if (key.Length <= KeyDigits || key[^KeyDigits..].ContainsAnyExceptInRange((byte)'0', (byte)'9'))
            return false;
        prefix = key[..^KeyDigits];
        return Utf8Parser.TryParse(key[^KeyDigits..], out number, out _);
    }

    /// <summary>Writes the key that has a number under a prefix, and returns its length.</summary>
    public static int WriteKey(Span<byte> destination, ReadOnlySpan<byte> prefix, ulong number)
    {
        prefix.CopyTo(destination);
        // No number of 64 bits has more digits.
        _ = Utf8Formatter.TryFormat(number, destination.Slice(prefix.Length, KeyDigits), out _, new StandardFormat('D', KeyDigits));
        return prefix.Length + KeyDigits;
    }
}
