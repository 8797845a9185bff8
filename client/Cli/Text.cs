using System.Text;

namespace KvCluster.Cli;

/// <summary>Keys and values between bytes and the text of a command line or of JSON.</summary>
internal static class Text
{
    private static readonly UTF8Encoding Strict = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    public static ReadOnlyMemory<byte> ToBytes(string text) => Encoding.UTF8.GetBytes(text);

    /// <summary>The bytes as UTF-8 text; null where they are none, so that nothing is shown as what it is not.</summary>
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

    /// <summary>For messages: text where it is text, else hex.</summary>
    public static string ForPeople(ReadOnlySpan<byte> bytes) => FromBytes(bytes) is { } text ? $"'{text}'" : $"0x{Convert.ToHexString(bytes)}";
}
