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

    /// <summary>For messages: quoted text if the bytes are UTF-8, else hex. A long one is abbreviated and followed by its length.</summary>
    public static string ForPeople(ReadOnlySpan<byte> bytes) => FromBytes(bytes) is { } text
        ? text.Length <= CharactersShown ? $"'{text}'"
            : $"'{text[..(char.IsHighSurrogate(text[CharactersShown - 1]) ? CharactersShown - 1 : CharactersShown)]}...' ({bytes.Length} bytes)"
        : bytes.Length <= CharactersShown / 2 ? $"0x{Convert.ToHexString(bytes)}"
        : $"0x{Convert.ToHexString(bytes[..(CharactersShown / 2)])}... ({bytes.Length} bytes)";
}
