using System.IO.Compression;
using KvCluster.Wire;

namespace KvCluster.Cli.Files;

/// <summary>
/// Decompresses a gzip file of one or more members (RFC 1952), and accepts it only if it is complete. <see cref="GZipStream"/> checks headers and checksums,
/// but it ends without an error where a file is truncated, and ignores what follows the last member. So it is given one more member after the end of the file.
/// If what comes out then is that member's content and nothing else, the file ended with a complete member. One thread at a time. The message of an
/// <see cref="InvalidDataException"/> continues a sentence that begins with the file's name.
/// </summary>
internal sealed class CheckedGzipStream : ForwardStream
{
    private readonly JoinedStream _packed;
    private readonly GZipStream _unpacked;
    private readonly bool _isEmpty;
    private bool _isEnded;

    /// <param name="file">The file; stays open.</param>
    /// <param name="begin">What has been read of it: its first bytes, or none if it is empty.</param>
    public CheckedGzipStream(Stream file, ReadOnlyMemory<byte> begin)
    {
        _isEmpty = begin.IsEmpty;
        _packed = new JoinedStream(file, begin, LastMember());
        _unpacked = new GZipStream(_packed, CompressionMode.Decompress, leaveOpen: true);
    }

    /// <summary>What a gzip file begins with: its mark and the compression method deflate.</summary>
    public static ReadOnlySpan<byte> Magic => [0x1F, 0x8B, 8];

    /// <summary>The content of the member after the end of the file.</summary>
    private static ReadOnlySpan<byte> LastContent => "complete"u8;

    /// <exception cref="InvalidDataException">The file is truncated or damaged, or something else follows it.</exception>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public override int Read(Span<byte> buffer)
    {
        if (_isEnded || buffer.IsEmpty)
            return 0;
        var read = Unpack(buffer);
        // GZipStream asks for more input only when it has nothing left to give out, so no read has bytes of both the file and the last member.
        if (!_packed.IsBehindFile)
            return read > 0 ? read : throw new InvalidDataException("has something after its end that is not gzip");
        for (var last = LastContent; read > 0 || !last.IsEmpty; read = Unpack(buffer))
        {
            if (_isEmpty || read == 0 || !last.StartsWith(buffer[..read]))
                throw new InvalidDataException("is truncated or damaged");
            last = last[read..];
        }
        _isEnded = true;
        return 0;
    }

    protected override void Dispose(bool disposing)
    {
        if (disposing)
            _unpacked.Dispose();
        base.Dispose(disposing);
    }

    private static byte[] LastMember()
    {
        var member = new MemoryStream();
        using (var packed = new GZipStream(member, CompressionLevel.NoCompression))
            packed.Write(LastContent);
        return member.ToArray();
    }

    private int Unpack(Span<byte> buffer)
    {
        try
        {
            return _unpacked.Read(buffer);
        }
        catch (InvalidDataException failure)
        {
            throw new InvalidDataException(_packed.IsBehindFile ? "is truncated or damaged" : "is damaged", failure);
        }
    }
}
