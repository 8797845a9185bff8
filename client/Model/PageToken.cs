using System.Buffers.Text;

namespace KvCluster.Client;

/// <summary>
/// The token of a page as one text without meaning to callers: "p1." and the bytes that a node gave for the next page, which have the snapshot, the key where
/// that page begins, and a checksum of the listing. It can stand in a URL as it is. Pure.
/// </summary>
internal static class PageToken
{
    private const string Prefix = "p1.";

    /// <summary>The text of a node's token; null if that is empty, because there is no next page.</summary>
    public static string? Of(ReadOnlySpan<byte> token) => token.IsEmpty ? null : Prefix + Base64Url.EncodeToString(token);

    /// <summary>The node's token of a text; empty for the first page.</summary>
    /// <exception cref="KvInvalidRequestException">The text is not a token.</exception>
    public static ReadOnlyMemory<byte> Parse(string? token)
    {
        if (string.IsNullOrEmpty(token))
            return default;
        try
        {
            if (token.StartsWith(Prefix, StringComparison.Ordinal) && Base64Url.DecodeFromChars(token.AsSpan(Prefix.Length)) is { Length: > 0 } bytes)
                return bytes;
        }
        catch (FormatException)
        {
            throw Invalid();
        }
        throw Invalid();
    }

    private static KvInvalidRequestException Invalid() => new(
        KvReasons.BadRequest,
        "The page token is damaged or of another program; nothing was read. Pass a token as a page has returned it, or begin without one.");
}
