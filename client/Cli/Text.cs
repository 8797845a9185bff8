using System.Buffers;
using System.Globalization;
using System.Text;

namespace KvCluster.Cli;

/// <summary>Converts keys and values between bytes and the text of a command line or of JSON.</summary>
internal static class Text
{
    private const int CharactersShown = 200;

    /// <summary>A number for people and scripts.</summary>
    public static string Number(long number) => number.ToString(CultureInfo.InvariantCulture);

    /// <summary>A length of time in seconds, to a millisecond.</summary>
    public static string Seconds(TimeSpan time) => time.TotalSeconds.ToString("0.###", CultureInfo.InvariantCulture);

    private static ReadOnlySpan<byte> QuoteBegin => "$'"u8;

    private static ReadOnlySpan<byte> QuoteEnd => "'"u8;

    private static readonly UTF8Encoding Strict = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    public static ReadOnlyMemory<byte> ToBytes(string text) => Encoding.UTF8.GetBytes(text);

    /// <summary>Returns the bytes as UTF-8 text; null if they are not valid UTF-8.</summary>
    public static string? FromBytes(ReadOnlySpan<byte> bytes)
    {
        try
        {
            return Strict.GetString(bytes);
        }
        catch (DecoderFallbackException)
        {
            return null;
        }
    }

    /// <summary>For JSON: the bytes as UTF-8 text, or in base64 if they are not valid UTF-8. The other one is null.</summary>
    public static (string? Text, string? Base64) ForJson(ReadOnlySpan<byte> bytes) =>
        FromBytes(bytes) is { } text ? (text, null) : (null, Convert.ToBase64String(bytes));

    /// <summary>
    /// For a terminal: text as it is with its line feeds and tabs, and everything that a terminal would obey, or show as something else, as \xNN. So are bytes
    /// that are not UTF-8.
    /// </summary>
    public static ReadOnlySpan<byte> ForTerminal(ReadOnlySpan<byte> bytes)
    {
        var shown = new ArrayBufferWriter<byte>(bytes.Length + 1);
        while (!bytes.IsEmpty)
        {
            var isText = Rune.DecodeFromUtf8(bytes, out var rune, out var length) == OperationStatus.Done;
            if (isText && (rune.Value is '\n' or '\t' || OneLine.Is(rune.ToString())))
            {
                shown.Write(bytes[..length]);
            }
            else
            {
                foreach (var one in bytes[..length])
                    shown.Write(Encoding.ASCII.GetBytes($"\\x{one:x2}"));
            }
            bytes = bytes[length..];
        }
        return shown.WrittenSpan;
    }

    /// <summary>
    /// Whether bytes can be one of several columns of a line as they are. A tab, a line feed and a carriage return would divide it, and what begins as
    /// <see cref="Quoted"/> does would be taken for quoted. A terminal obeys control characters, and shows no bytes that are not UTF-8.
    /// </summary>
    public static bool IsPlain(ReadOnlySpan<byte> bytes, bool isTerminal) =>
        !bytes.ContainsAny((byte)'\t', (byte)'\n', (byte)'\r') && !bytes.StartsWith(QuoteBegin)
        && (!isTerminal || (System.Text.Unicode.Utf8.IsValid(bytes) && OneLine.Is(Encoding.UTF8.GetString(bytes))));

    /// <summary>
    /// Bytes as bash quotes them: between $' and ', with \t, \n, \r, \\ and \' for what they mean there, and \xNN for what a terminal would obey and for bytes
    /// that are not UTF-8.
    /// </summary>
    public static ReadOnlySpan<byte> Quoted(ReadOnlySpan<byte> bytes)
    {
        var shown = new ArrayBufferWriter<byte>((2 * bytes.Length) + QuoteBegin.Length + 1);
        shown.Write(QuoteBegin);
        while (!bytes.IsEmpty)
        {
            var isText = Rune.DecodeFromUtf8(bytes, out var rune, out var length) == OperationStatus.Done;
            if (isText && EscapeOf(rune) is { } escape)
            {
                shown.Write(Encoding.ASCII.GetBytes(escape));
            }
            else if (isText && OneLine.Is(rune.ToString()))
            {
                shown.Write(bytes[..length]);
            }
            else
            {
                foreach (var one in bytes[..length])
                    shown.Write(Encoding.ASCII.GetBytes($"\\x{one:x2}"));
            }
            bytes = bytes[length..];
        }
        shown.Write(QuoteEnd);
        return shown.WrittenSpan;
    }

    /// <summary>Reads what <see cref="Quoted"/> writes. Bytes that do not begin so are what they are. False: the quotes are broken.</summary>
    public static bool TryUnquote(ReadOnlyMemory<byte> field, out ReadOnlyMemory<byte> bytes)
    {
        bytes = field;
        var quoted = field.Span;
        if (!quoted.StartsWith(QuoteBegin))
            return true;
        if (quoted.Length == QuoteBegin.Length || !quoted.EndsWith(QuoteEnd))
            return false;
        quoted = quoted[QuoteBegin.Length..^QuoteEnd.Length];
        var plain = new byte[quoted.Length];
        var length = 0;
        while (!quoted.IsEmpty)
        {
            var (meant, taken) = quoted[0] == '\\' ? Unescaped(quoted) : (quoted[0] == QuoteEnd[0] ? -1 : quoted[0], 1);
            if (meant < 0)
                return false;
            plain[length++] = (byte)meant;
            quoted = quoted[taken..];
        }
        bytes = plain.AsMemory(0, length);
        return true;
    }

    // The byte that an escape at the beginning means, -1 if it is none, and its length.
    private static (int Meant, int Taken) Unescaped(ReadOnlySpan<byte> quoted) => quoted switch
    {
        [_, (byte)'t', ..] => ('\t', 2),
        [_, (byte)'n', ..] => ('\n', 2),
        [_, (byte)'r', ..] => ('\r', 2),
        [_, (byte)'\\' or (byte)'\'', ..] => (quoted[1], 2),
        [_, (byte)'x', var high, var low, ..] when HexOf(high) >= 0 && HexOf(low) >= 0 => ((HexOf(high) << 4) | HexOf(low), 4),
        _ => (-1, 1),
    };

    private static int HexOf(byte digit) => digit switch
    {
        >= (byte)'0' and <= (byte)'9' => digit - '0',
        >= (byte)'a' and <= (byte)'f' => digit - 'a' + 10,
        >= (byte)'A' and <= (byte)'F' => digit - 'A' + 10,
        _ => -1,
    };

    private static string? EscapeOf(Rune rune) => rune.Value switch
    {
        '\t' => @"\t",
        '\n' => @"\n",
        '\r' => @"\r",
        '\\' => @"\\",
        '\'' => @"\'",
        _ => null,
    };

    /// <summary>For messages: quoted text if the bytes are UTF-8, else hex. A long one is abbreviated and followed by its length.</summary>
    public static string ForPeople(ReadOnlySpan<byte> bytes) => FromBytes(bytes) is { } text
        ? text.Length <= CharactersShown ? $"'{text}'"
            : $"'{text[..(char.IsHighSurrogate(text[CharactersShown - 1]) ? CharactersShown - 1 : CharactersShown)]}...' ({bytes.Length} bytes)"
        : bytes.Length <= CharactersShown / 2 ? $"0x{Convert.ToHexString(bytes)}"
        : $"0x{Convert.ToHexString(bytes[..(CharactersShown / 2)])}... ({bytes.Length} bytes)";
}
