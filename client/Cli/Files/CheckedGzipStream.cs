using System.Buffers.Binary;
using System.IO.Compression;

namespace KvCluster.Cli.Files;

/// <summary>
/// Decompresses a gzip file of one or more members (RFC 1952) and accepts it only if it is complete. <see cref="GZipStream"/> ends silently where a file is
/// truncated, and ignores what follows the last member. One thread at a time. The message of an <see cref="InvalidDataException"/> continues a sentence that
/// begins with the file's name.
/// </summary>
/// <remarks>
/// <see cref="DeflateStream"/> reports that a member ended, but not where in its input. The member's checksum and length follow there. Both are known by then,
/// so they are searched in the few kilobytes that it read last.
/// </remarks>
/// <param name="packed">The file from its beginning. It stays open.</param>
internal sealed class CheckedGzipStream(LookbackStream packed) : ForwardStream
{
    private const string Truncated = "is truncated";
    private const int DeflateMethod = 8;
    private const int FixedHeaderRest = 6;
    private const int TrailerBytes = 8;

    private DeflateStream? _member;
    private uint _crc;
    private uint _length;
    private bool _isEnded;

    [Flags]
    private enum HeaderFlags
    {
        Checksum = 2,
        Extra = 4,
        Name = 8,
        Comment = 16,
        Reserved = 0xE0,
    }

    /// <summary>The bytes with which a gzip file begins.</summary>
    public static ReadOnlySpan<byte> Magic => [0x1F, 0x8B, DeflateMethod];

    /// <exception cref="InvalidDataException">The file is truncated or damaged, or something else follows it.</exception>
    /// <exception cref="IOException">The file cannot be read.</exception>
    public override int Read(Span<byte> buffer)
    {
        while (!_isEnded && !buffer.IsEmpty)
        {
            _member ??= BeginMember();
            var read = Unpack(_member, buffer);
            if (read > 0)
            {
                _crc = Crc32.Append(_crc, buffer[..read]);
                _length += (uint)read;
                return read;
            }

            EndMember();
            _isEnded = packed.IsAtEnd();
        }

        return 0;
    }

    protected override void Dispose(bool disposing)
    {
        if (disposing)
            _member?.Dispose();
        base.Dispose(disposing);
    }

    private static int Unpack(DeflateStream member, Span<byte> buffer)
    {
        try
        {
            return member.Read(buffer);
        }
        catch (InvalidDataException e)
        {
            throw new InvalidDataException("is damaged", e);
        }
    }

    private DeflateStream BeginMember()
    {
        foreach (var expected in Magic)
        {
            if (Next() != expected)
                throw new InvalidDataException("is not a gzip file");
        }

        var flags = (HeaderFlags)Next();
        if ((flags & HeaderFlags.Reserved) != 0)
            throw new InvalidDataException("is a gzip file with unknown flags");
        Skip(FixedHeaderRest);
        if (flags.HasFlag(HeaderFlags.Extra))
            Skip(Next() | (Next() << 8));
        if (flags.HasFlag(HeaderFlags.Name))
            SkipText();
        if (flags.HasFlag(HeaderFlags.Comment))
            SkipText();
        if (flags.HasFlag(HeaderFlags.Checksum))
            Skip(sizeof(ushort));
        (_crc, _length) = (0, 0);
        return new DeflateStream(packed, CompressionMode.Decompress, leaveOpen: true);
    }

    private void EndMember()
    {
        if (packed.IsExhausted)
            throw new InvalidDataException(Truncated);
        Span<byte> trailer = stackalloc byte[TrailerBytes];
        BinaryPrimitives.WriteUInt32LittleEndian(trailer, _crc);
        BinaryPrimitives.WriteUInt32LittleEndian(trailer[sizeof(uint)..], _length);
        if (!packed.TryGoBehind(trailer, Magic))
            throw new InvalidDataException("is truncated or damaged: its checksum does not match, or something else follows");
        _member?.Dispose();
        _member = null;
    }

    private void Skip(int count)
    {
        for (; count > 0; count--)
            Next();
    }

    private void SkipText()
    {
        while (Next() != 0)
        {
        }
    }

    private byte Next() => packed.ReadByte() is >= 0 and var next ? (byte)next : throw new InvalidDataException(Truncated);
}
