using System.Globalization;
using System.Text;

namespace KvCluster.ServiceDefaults.Calls;

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
}
