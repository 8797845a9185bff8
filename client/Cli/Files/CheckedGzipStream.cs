using System.Buffers.Binary;
using System.IO.Compression;

namespace KvCluster.Cli.Files;

/// <summary>
/// Unpacks a gzip file of one or more members (RFC 1952) and takes it as whole only if it is: <see cref="GZipStream"/> ends without a word
/// where a file is cut off, and ignores what follows the last member. One thread at a time. An <see cref="InvalidDataException"/> says what
/// is wrong as what follows the file's name in a sentence.
/// </summary>
/// <remarks>
/// <see cref="DeflateStream"/> does not tell where in its input a member ended, only that it did. The member's checksum and length follow
/// there, and both are known by then: they are looked for in the few kilobytes that it took last.
/// </remarks>
/// <param name="packed">The file from its beginning; stays open.</param>
internal sealed class CheckedGzipStream(LookbackStream packed) : ForwardStream
{
    private const string CutOff = "is cut off";
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

    /// <summary>What a gzip file begins with.</summary>
    public static ReadOnlySpan<byte> Magic => [0x1F, 0x8B, DeflateMethod];

    /// <exception cref="InvalidDataException">The file is cut off, damaged, or goes on with something else.</exception>
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
                throw new InvalidDataException("is no gzip file");
        }

        var flags = (HeaderFlags)Next();
        if ((flags & HeaderFlags.Reserved) != 0)
            throw new InvalidDataException("is no gzip file of a known kind");
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
            throw new InvalidDataException(CutOff);
        Span<byte> trailer = stackalloc byte[TrailerBytes];
        BinaryPrimitives.WriteUInt32LittleEndian(trailer, _crc);
        BinaryPrimitives.WriteUInt32LittleEndian(trailer[sizeof(uint)..], _length);
        if (!packed.TryGoBehind(trailer, Magic))
            throw new InvalidDataException("is cut off or damaged: its checksum does not agree with it, or something else follows");
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

    private byte Next() => packed.ReadByte() is >= 0 and var next ? (byte)next : throw new InvalidDataException(CutOff);
}
