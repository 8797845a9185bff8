using System.Text;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The order of keys, for models: byte by byte, and a prefix comes before longer keys.</summary>
internal sealed class ByteKeys : IComparer<byte[]>
{
    public static readonly ByteKeys Order = new();

    public int Compare(byte[]? x, byte[]? y) => x.AsSpan().SequenceCompareTo(y);

    /// <summary>A printable form of a key: text, with other bytes as hex.</summary>
    public static string Print(ReadOnlySpan<byte> key)
    {
        var text = new StringBuilder();
        foreach (var value in key[..Math.Min(key.Length, 64)])
            text.Append(value is >= 0x21 and < 0x7f ? ((char)value).ToString() : $"\\{value:x2}");
        return key.Length > 64 ? $"{text}... ({key.Length} bytes)" : text.ToString();
    }
}
