using System.Buffers;
using System.Runtime.InteropServices;
using System.Security.Cryptography;
using System.Text;
using System.Text.Unicode;
using KvCluster.Client;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// The keys in the cluster of texts of any length and content, below a prefix. A text is its UTF-8, as long as it has at most 1,024 bytes. A longer one, and
/// one that has no UTF-8 because of half of a surrogate pair, is the hash of its UTF-16 behind a zero byte. No two texts have the same key: one that begins
/// with a zero character is hashed, too. Any thread.
/// </summary>
internal sealed class CacheKeys(string prefix)
{
    public const int PrefixBytesMax = 512;
    private const int TextBytesMax = 1_024;
    private const char Hashed = '\0';

    private readonly byte[] _prefix = Encoding.UTF8.GetBytes(prefix);

    /// <summary>Whether a text can be a prefix.</summary>
    public static bool IsPrefix(string? prefix)
    {
        Span<byte> utf8 = stackalloc byte[PrefixBytesMax];
        return !string.IsNullOrEmpty(prefix) && Utf8.FromUtf16(prefix, utf8, out _, out _, replaceInvalidSequences: false) == OperationStatus.Done;
    }

    /// <summary>The key of a text.</summary>
    public KvKey Of(string text)
    {
        ArgumentNullException.ThrowIfNull(text);
        Span<byte> utf8 = stackalloc byte[TextBytesMax];
        if ((text.Length == 0 || text[0] != Hashed)
            && Utf8.FromUtf16(text, utf8, out _, out var length, replaceInvalidSequences: false) == OperationStatus.Done)
            return (byte[])[.. _prefix, .. utf8[..length]];
        return (byte[])[.. _prefix, (byte)Hashed, .. SHA256.HashData(MemoryMarshal.AsBytes(text.AsSpan()))];
    }
}
