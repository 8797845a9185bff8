using System.Globalization;
using System.Text;

namespace Grpc.Shared;

/// <summary>The text of <c>grpc-message</c>: UTF-8, with '%' and everything except printable ASCII percent-encoded.</summary>
internal static class StatusMessage
{
    /// <summary>
    /// A text that is longer when encoded is truncated, because clients accept 8 KiB of headers by default. Our own texts are far shorter. A text that
    /// repeats what a caller sent may be as long as that, and three times as long when encoded.
    /// </summary>
    public const int BytesMax = 4 << 10;

    private const string Cut = "...";

    public static string Encode(string message)
    {
        if (message.Length <= BytesMax && !message.AsSpan().ContainsAnyExceptInRange(' ', '~') && !message.Contains('%'))
            return message;
        var encoded = new StringBuilder(Math.Min(message.Length, BytesMax));
        Span<byte> octets = stackalloc byte[4];
        var cutAt = 0;
        foreach (var rune in message.AsSpan().EnumerateRunes())
        {
            var count = rune.EncodeToUtf8(octets);
            var isPlain = rune.Value is >= ' ' and <= '~' and not '%';
            if (encoded.Length + (isPlain ? 1 : 3 * count) > BytesMax)
            {
                encoded.Length = cutAt;
                return encoded.Append(Cut).ToString();
            }
            if (isPlain)
                encoded.Append((char)rune.Value);
            else
                AppendEscaped(encoded, octets[..count]);
            if (encoded.Length <= BytesMax - Cut.Length)
                cutAt = encoded.Length;
        }
        return encoded.ToString();
    }

    private static void AppendEscaped(StringBuilder encoded, ReadOnlySpan<byte> octets)
    {
        foreach (var octet in octets)
            encoded.Append(CultureInfo.InvariantCulture, $"%{octet:X2}");
    }

    /// <summary>Never fails: what is not an escape is kept unchanged.</summary>
    public static string Decode(string message)
    {
        if (!message.Contains('%'))
            return message;
        var octets = Encoding.UTF8.GetBytes(message);
        var length = 0;
        for (var i = 0; i < octets.Length; i++)
        {
            if (octets[i] == '%' && i + 2 < octets.Length
                && byte.TryParse(octets.AsSpan(i + 1, 2), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var octet))
            {
                octets[length++] = octet;
                i += 2;
            }
            else
            {
                octets[length++] = octets[i];
            }
        }
        return Encoding.UTF8.GetString(octets, 0, length);
    }
}
