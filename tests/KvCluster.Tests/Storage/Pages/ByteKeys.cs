using System.Buffers.Binary;
using System.Text;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The order of keys, for models: byte by byte, and a prefix comes before longer keys.</summary>
internal sealed class ByteKeys : IComparer<byte[]>
{
    public static readonly ByteKeys Order = new();

    public int Compare(byte[]? x, byte[]? y) => x.AsSpan().SequenceCompareTo(y);

    /// <summary>A key whose order is that of the numbers.</summary>
    public static byte[] Of(int number)
    {
        var key = new byte[sizeof(int)];
        BinaryPrimitives.WriteInt32BigEndian(key, number);
        return key;
    }

    /// <summary>Whether a key is in the range from one key up to another (empty: the end).</summary>
    public static bool IsBetween(byte[] key, byte[] from, byte[] to) => Order.Compare(key, from) >= 0 && (to.Length == 0 || Order.Compare(key, to) < 0);

    /// <summary>A printable form of a key: text, with other bytes as hex.</summary>
    public static string Print(ReadOnlySpan<byte> key)
    {
        var text = new StringBuilder();
        foreach (var value in key[..Math.Min(key.Length, 64)])
            text.Append(value is >= 0x21 and < 0x7f ? ((char)value).ToString() : $"\\{value:x2}");
        return key.Length > 64 ? $"{text}... ({key.Length} bytes)" : text.ToString();
    }
}
