using System.Buffers;
using System.CommandLine;

namespace KvCluster.Cli;

/// <summary>Keys on the command line, which are text, or bytes in hexadecimal or base64. Other keys cannot be written there.</summary>
internal static class KeyForm
{
    private static readonly Option<bool> Hex = new("--key-hex") { Description = "Keys and prefixes are given in hexadecimal, for those that are not UTF-8." };

    private static readonly Option<bool> Base64 =
        new("--key-base64") { Description = "Keys and prefixes are given in base64, as --output json prints those that are not UTF-8." };

    /// <summary>The options; each command with keys lists them.</summary>
    public static IReadOnlyList<Option> All { get; } = [Hex, Base64];

    /// <summary>The bytes of a key, or of a prefix or an end of keys.</summary>
    /// <exception cref="CliException">The options exclude each other, or the text is not of the form.</exception>
    public static ReadOnlyMemory<byte> Of(ParseResult arguments, string text) => (arguments.GetValue(Hex), arguments.GetValue(Base64)) switch
    {
        (true, true) => throw new CliException(ExitCodes.Usage, "--key-hex and --key-base64 exclude each other."),
        (true, _) => FromHex(text),
        (_, true) => FromBase64(text),
        _ => Text.ToBytes(text),
    };

    private static ReadOnlyMemory<byte> FromHex(string text)
    {
        var bytes = new byte[text.Length / 2];
        return text.Length % 2 == 0 && Convert.FromHexString(text, bytes, out _, out _) == OperationStatus.Done
            ? bytes
            : throw new CliException(ExitCodes.Usage, $"--key-hex: '{text}' is not an even number of hexadecimal digits.");
    }

    private static ReadOnlyMemory<byte> FromBase64(string text)
    {
        var bytes = new byte[text.Length];
        return Convert.TryFromBase64String(text, bytes, out var length)
            ? bytes.AsMemory(0, length)
            : throw new CliException(ExitCodes.Usage, $"--key-base64: '{text}' is not base64.");
    }
}
