using System.Globalization;
using System.Text;

namespace Grpc.Shared;

/// <summary>The text of <c>grpc-message</c>: UTF-8, with everything but printable ASCII and '%' itself percent-encoded.</summary>
internal static class StatusMessage
{
    /// <summary>
    /// Longer texts are cut: clients take 8 KiB of headers by default, and encoded each of these may be three. Our own are far shorter; one that repeats what a caller sent may be as long as
    /// that is.
    /// </summary>
    public const int BytesMax = 4 << 10;

    private const string Cut = "...";

    public static string Encode(string message)
    {
        message = Shorten(message);
        if (!message.AsSpan().ContainsAnyExceptInRange(' ', '~') && !message.Contains('%'))
            return message;
        var encoded = new StringBuilder(message.Length * 2);
        foreach (var octet in Encoding.UTF8.GetBytes(message))
        {
            if (octet is >= (byte)' ' and <= (byte)'~' and not (byte)'%')
                encoded.Append((char)octet);
            else
                encoded.Append(CultureInfo.InvariantCulture, $"%{octet:X2}");
        }
        return encoded.ToString();
    }

    private static string Shorten(string message)
    {
        if (message.Length <= BytesMax && Encoding.UTF8.GetByteCount(message) <= BytesMax)
            return message;
        var (bytes, kept) = (0, 0);
        foreach (var rune in message.AsSpan().EnumerateRunes())
        {
            bytes += rune.Utf8SequenceLength;
            if (bytes > BytesMax - Cut.Length)
                break;
            kept += rune.Utf16SequenceLength;
        }
        return string.Concat(message.AsSpan(0, kept), Cut);
    }

    /// <summary>Never fails: what is not an escape stays as it is.</summary>
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
