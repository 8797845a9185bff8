using K4os.Compression.LZ4;

namespace KvCluster.Storage.Encoding;

/// <summary>
/// The block format of LZ4 (github.com/lz4/lz4, doc/lz4_Block_format.md) by the package K4os.Compression.LZ4. It is part of the program, so every replica can
/// make blocks and read those of any other, whatever its system has installed. Any thread.
/// </summary>
internal static class Lz4
{
    /// <summary>From this length on, samples are looked at first, because large values are often compressed already.</summary>
    private const int SampledBytesMin = 256 << 10;
    private const int SampleBytes = 16 << 10;
    private const int Samples = 4;

    /// <summary>
    /// Whether compressing a block may save a part of it: if it is long, only if one of some samples becomes shorter by that part.
    /// </summary>
    /// <param name="source">The block.</param>
    /// <param name="part">The part, as the number of parts of which it is one.</param>
    /// <param name="buffer">Memory for a compressed sample, if the block is long at least 16 KiB.</param>
    public static bool MaySave(ReadOnlySpan<byte> source, int part, Span<byte> buffer)
    {
        if (source.Length < SampledBytesMin)
            return true;
        for (var sample = 0; sample < Samples; sample++)
        {
            var begin = (int)((long)(source.Length - SampleBytes) * sample / (Samples - 1));
            if (Compress(source.Slice(begin, SampleBytes), buffer[..(SampleBytes - (SampleBytes / part))]) > 0)
                return true;
        }
        return false;
    }

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
