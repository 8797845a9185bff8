using K4os.Compression.LZ4;

namespace KvCluster.Storage.Encoding;

/// <summary>
/// The block format of LZ4 (github.com/lz4/lz4, doc/lz4_Block_format.md) by the package K4os.Compression.LZ4. It is part of the program, so every replica can
/// make blocks and read those of any other, whatever its system has installed. Any thread.
/// </summary>
internal static class Lz4
{
    /// <summary>Compresses a block. 0 if the result has more bytes than <paramref name="destination"/>.</summary>
    /// <returns>Length of the block.</returns>
    public static int Compress(ReadOnlySpan<byte> source, Span<byte> destination) =>
        destination.IsEmpty ? 0 : Math.Max(0, LZ4Codec.Encode(source, destination));

    /// <summary>
    /// Decompresses a block. False if it is not a block that gives exactly as many bytes as <paramref name="destination"/> has; its content is then undefined.
    /// The result depends on nothing but the block.
    /// </summary>
    public static bool TryDecompress(ReadOnlySpan<byte> block, Span<byte> destination)
    {
        // The decoder refuses the block of nothing, which is one byte.
        if (destination.IsEmpty)
            return block is [0];
        // No encoder makes a match with the distance 0. The decoder accepts it, and takes the match from what was in the memory before.
        destination.Clear();
        return LZ4Codec.Decode(block, destination) == destination.Length;
    }
}
