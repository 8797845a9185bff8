using System.Buffers.Binary;

namespace KvCluster.Processes;

/// <summary>Counts the DATA frames in one direction of an HTTP/2 connection as its bytes pass. One thread at a time.</summary>
/// <param name="preface">The length of the client preface before the first frame.</param>
internal sealed class DataFrames(int preface)
{
    public const int ClientPreface = 24;

    private const int HeaderBytes = 9;
    private const int TypeOffset = 3;

    private readonly byte[] _header = new byte[HeaderBytes];
    private int _skip = preface;
    private int _headerBytes;

    /// <summary>Reads the next bytes.</summary>
    /// <returns>The number of DATA frames that begin in them.</returns>
    public int Take(ReadOnlySpan<byte> bytes)
    {
        var count = 0;
        while (bytes.Length > 0)
        {
            var skipped = Math.Min(_skip, bytes.Length);
            _skip -= skipped;
            bytes = bytes[skipped..];
            var taken = Math.Min(HeaderBytes - _headerBytes, bytes.Length);
            bytes[..taken].CopyTo(_header.AsSpan(_headerBytes));
            _headerBytes += taken;
            bytes = bytes[taken..];
            if (_headerBytes < HeaderBytes)
                return count;
            _skip = (int)(BinaryPrimitives.ReadUInt32BigEndian(_header) >> 8);
            count += _header[TypeOffset] == 0 ? 1 : 0;
            _headerBytes = 0;
        }

        return count;
    }
}
