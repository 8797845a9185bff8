using System.Buffers;
using System.Globalization;
using System.Text;
using System.Text.Unicode;

namespace KvCluster.Client;

/// <summary>
/// Text of keys and values. Nothing is replaced, in neither direction: two texts never become the same bytes, and bytes that are not text are refused. Pure.
/// </summary>
internal static class Utf8Text
{
    private static readonly UTF8Encoding Strict = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    /// <exception cref="ArgumentException">The text has half of a surrogate pair.</exception>
    public static byte[] Write(string text)
    {
        ArgumentNullException.ThrowIfNull(text);
        try
        {
            return Strict.GetBytes(text);
        }
        catch (EncoderFallbackException failure)
        {
            throw HalfOfAPair(failure);
        }
    }

    /// <summary>What a text without UTF-8 is refused with.</summary>
    public static ArgumentException HalfOfAPair(Exception? cause = null) => new(
        "The text has half of a surrogate pair, which has no UTF-8, so it makes no key or value. Pass complete characters, or bytes.", cause);

    /// <param name="bytes">The bytes.</param>
    /// <param name="what">What they are, for the message.</param>
    /// <exception cref="FormatException">They are not valid UTF-8.</exception>
    public static string Read(ReadOnlySpan<byte> bytes, string what) => Utf8.IsValid(bytes) ? Encoding.UTF8.GetString(bytes) : throw new FormatException(
        $"The {what}, of {bytes.Length:N0} bytes, is not UTF-8 text. Read its bytes, by Span or Memory.");

    /// <summary>The text; as \xNN whatever is not UTF-8, and what a terminal would obey or show as something else.</summary>
    public static string ForPeople(ReadOnlySpan<byte> bytes)
    {
        var text = new StringBuilder(bytes.Length);
        Span<char> characters = stackalloc char[2];
        while (!bytes.IsEmpty)
        {
            var isText = Rune.DecodeFromUtf8(bytes, out var rune, out var length) == OperationStatus.Done;
            var shown = characters[..rune.EncodeToUtf16(characters)];
            if (isText && OneLine.Is(shown))
            {
                text.Append(shown);
            }
            else
            {
                foreach (var one in bytes[..length])
                    text.Append(CultureInfo.InvariantCulture, $"\\x{one:x2}");
            }
            bytes = bytes[length..];
        }
        return text.ToString();
    }
}
