using System.Buffers.Binary;
using System.Runtime.InteropServices;

namespace KvCluster.Storage.Encoding;

/// <summary>
/// The block format of LZ4 (github.com/lz4/lz4, doc/lz4_Block_format.md). Blocks are made by the system's library, which may be missing, and read by
/// this code, so that every replica can read what any other has written. Any thread.
/// </summary>
internal static unsafe class Lz4
{
    /// <summary>The shortest match; a token stores a match's length less this.</summary>
    private const int MatchBytesMin = 4;

    /// <summary>A length of 15 in a token goes on in the bytes behind it.</summary>
    private const int LengthGoesOn = 15;

    private static readonly delegate* unmanaged<byte*, byte*, int, int, int> _compress = Load();

    /// <summary>Whether this machine can make blocks.</summary>
    public static bool CanCompress => _compress != null;

    /// <summary>Compresses a block. 0 if the result has more bytes than <paramref name="destination"/>, or the library is missing.</summary>
    /// <returns>Length of the block.</returns>
    public static int Compress(ReadOnlySpan<byte> source, Span<byte> destination)
    {
        if (!CanCompress || destination.IsEmpty)
            return 0;
        fixed (byte* from = source)
        fixed (byte* to = destination)
            return _compress(from, to, source.Length, destination.Length);
    }

    /// <summary>Decompresses a block. False if it is not a block that gives exactly as many bytes as <paramref name="destination"/> has.</summary>
    public static bool TryDecompress(ReadOnlySpan<byte> block, Span<byte> destination)
    {
        var (read, written) = (0, 0);
        while (read < block.Length)
        {
            var token = block[read++];
            if (!TryReadLength(block, ref read, token >> 4, out var literals) || literals > block.Length - read || literals > destination.Length - written)
                return false;
            block.Slice(read, (int)literals).CopyTo(destination[written..]);
            (read, written) = (read + (int)literals, written + (int)literals);
            // A block ends after literals.
            if (read == block.Length)
                return written == destination.Length;
            if (block.Length - read < sizeof(ushort))
                return false;
            var distance = BinaryPrimitives.ReadUInt16LittleEndian(block[read..]);
            read += sizeof(ushort);
            if (distance == 0 || distance > written || !TryReadLength(block, ref read, token & LengthGoesOn, out var match)
                || match + MatchBytesMin > destination.Length - written)
                return false;
            CopyMatch(destination, ref written, distance, (int)match + MatchBytesMin);
        }
        return false;
    }

    private static bool TryReadLength(ReadOnlySpan<byte> block, ref int read, int inToken, out long length)
    {
        length = inToken;
        if (inToken < LengthGoesOn)
            return true;
        byte more;
        do
        {
            if (read == block.Length)
                return false;
            more = block[read++];
            length += more;
        }
        while (more == byte.MaxValue);
        return true;
    }

    /// <summary>A match may be longer than its distance; it then repeats what it has just written.</summary>
    private static void CopyMatch(Span<byte> destination, ref int written, int distance, int length)
    {
        var from = written - distance;
        while (length > 0)
        {
            var part = Math.Min(written - from, length);
            destination.Slice(from, part).CopyTo(destination[written..]);
            (written, length) = (written + part, length - part);
        }
    }

    private static delegate* unmanaged<byte*, byte*, int, int, int> Load() =>
        NativeLibrary.TryLoad("liblz4.so.1", out var library) && NativeLibrary.TryGetExport(library, "LZ4_compress_default", out var compress)
            ? (delegate* unmanaged<byte*, byte*, int, int, int>)compress
            : null;
}
