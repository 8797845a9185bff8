using System.Buffers;
using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Pages;

/// <summary>
/// The bytes of a compressed value (FORMAT.md, "Compressed value"): the length of its header, the header as it is, and a block of LZ4 with what follows. How
/// long the whole value is stands before these bytes in a cell that has the value, and beside the reference in one that refers to a run. Pure; any thread.
/// </summary>
internal static class CompressedValue
{
    /// <summary>Bytes of the length of the whole value.</summary>
    public const int LengthBytes = sizeof(int);

    /// <summary>What follows the header of a value is compressed from this length on, in bytes. Of less there is little to save, or to find again.</summary>
    public const int BodyBytesMin = 256;

    /// <summary>A compressed value is kept if it saves at least this part of what follows the header.</summary>
    public const int SavedPart = 4;

    /// <summary>One byte tells the length of the header.</summary>
    private const int HeaderBytesMax = byte.MaxValue;

    /// <summary>A block of LZ4 gives at most so many times its bytes.</summary>
    private const int ExpansionMax = 255;

    /// <summary>Whether a value with these parts can be compressed. A value without a header is not, because nobody reads a part of it alone.</summary>
    public static bool MayBe(ReadOnlySpan<byte> header, ReadOnlySpan<byte> body) => body.Length >= BodyBytesMin && header.Length is > 0 and <= HeaderBytesMax;

    /// <summary>Bytes that <see cref="TryWrite"/> needs for a value with these parts.</summary>
    public static int BufferBytes(ReadOnlySpan<byte> header, ReadOnlySpan<byte> body) => HeadBytes(header) + body.Length;

    /// <summary>Writes the length of a value and its compressed bytes. Returns how many these are together; 0 if they do not save enough.</summary>
    public static int TryWrite(Span<byte> destination, ReadOnlySpan<byte> header, ReadOnlySpan<byte> body)
    {
        var head = HeadBytes(header);
        var block = destination[head..];
        var blockBytesMax = body.Length - (body.Length / SavedPart) - (head - header.Length);
        var bytes = Lz4.MaySave(body, SavedPart, block) ? Lz4.Compress(body, block[..blockBytesMax]) : 0;
        if (bytes == 0)
            return 0;
        BinaryPrimitives.WriteInt32LittleEndian(destination, header.Length + body.Length);
        destination[LengthBytes] = (byte)header.Length;
        header.CopyTo(destination[(LengthBytes + 1)..]);
        return head + bytes;
    }

    /// <summary>The header of a value of whose compressed bytes these are the first. False if they do not have all of it.</summary>
    public static bool TryReadHeader(ReadOnlySpan<byte> compressed, out ReadOnlySpan<byte> header)
    {
        var isThere = !compressed.IsEmpty && compressed.Length > compressed[0];
        header = isThere ? compressed.Slice(1, compressed[0]) : default;
        return isThere;
    }

    /// <summary>The value of these compressed bytes, which are in two parts, of which either may be empty. Null if they are not those of a value.</summary>
    /// <param name="length">The length of the value, of which there is nothing wrong by <see cref="Problem"/>.</param>
    /// <param name="first">The first part.</param>
    /// <param name="second">The second part.</param>
    public static byte[]? TryRead(int length, ReadOnlySpan<byte> first, ReadOnlySpan<byte> second)
    {
        if (first.IsEmpty || second.IsEmpty)
            return TryRead(length, first.IsEmpty ? second : first);
        var rented = ArrayPool<byte>.Shared.Rent(first.Length + second.Length);
        first.CopyTo(rented);
        second.CopyTo(rented.AsSpan(first.Length));
        var value = TryRead(length, rented.AsSpan(0, first.Length + second.Length));
        ArrayPool<byte>.Shared.Return(rented);
        return value;
    }

    /// <summary>
    /// What is wrong with the length that is recorded of a value with so many compressed bytes; null if it can be right. Whoever reads the value takes memory
    /// for it before the bytes are decompressed, so it must not be longer than they can give.
    /// </summary>
    public static string? Problem(long length, long compressedBytes) =>
        length > Page.ValueBytesMax ? $"a compressed value of {length} bytes, which is too long"
        : length <= compressedBytes ? $"a compressed value of {length} bytes that takes {compressedBytes}"
        : length > compressedBytes * ExpansionMax ? $"a compressed value of {length} bytes, which {compressedBytes} cannot give"
        : null;

    private static int HeadBytes(ReadOnlySpan<byte> header) => LengthBytes + 1 + header.Length;

    private static byte[]? TryRead(int length, ReadOnlySpan<byte> compressed)
    {
        if (!TryReadHeader(compressed, out var header) || header.IsEmpty || header.Length > length)
            return null;
        var value = GC.AllocateUninitializedArray<byte>(length);
        header.CopyTo(value);
        return Lz4.TryDecompress(compressed[(1 + header.Length)..], value.AsSpan(header.Length)) ? value : null;
    }
}
