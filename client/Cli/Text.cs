using System.Text;

namespace KvCluster.Cli;

/// <summary>Converts keys and values between bytes and the text of a command line or of JSON.</summary>
internal static class Text
{
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

    /// <summary>For messages: quoted text if the bytes are UTF-8, else hex.</summary>
    public static string ForPeople(ReadOnlySpan<byte> bytes) => FromBytes(bytes) is { } text ? $"'{text}'" : $"0x{Convert.ToHexString(bytes)}";
}
