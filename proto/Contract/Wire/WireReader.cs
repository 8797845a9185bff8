using System.Buffers.Binary;

namespace KvCluster.Wire;

/// <summary>
/// Reads the fields of an encoded protobuf message one by one, without objects. Fields that the caller does not know are skipped with <see cref="Skip"/>.
/// </summary>
/// <exception cref="MalformedMessageException">From every method: the bytes are not a message.</exception>
internal ref struct WireReader(ReadOnlySpan<byte> bytes)
{
    private ReadOnlySpan<byte> _rest = bytes;
    private uint _wireType;

    /// <summary>Number of bytes not read yet.</summary>
    public readonly int Left => _rest.Length;

    /// <summary>Whether the field's value is bytes or a message, or a packed list of numbers.</summary>
    public readonly bool IsBytes => _wireType == (uint)WireType.Bytes;

    /// <summary>The next field's number; 0 if there is none.</summary>
    public int ReadField()
    {
        if (_rest.IsEmpty)
            return 0;
        var tag = ReadVarint();
        _wireType = (uint)tag & 7;
        var field = tag >> 3;
        return field is > 0 and <= 536_870_911 ? (int)field : throw Malformed();
    }

    public ulong ReadVarint()
    {
        ulong value = 0;
        for (var index = 0; index < Math.Min(_rest.Length, 10); index++)
        {
            value |= (ulong)(_rest[index] & 0x7F) << (7 * index);
            if (_rest[index] >= 0x80)
                continue;
            _rest = _rest[(index + 1)..];
            return value;
        }
        throw Malformed();
    }

    /// <summary>The value of a varint field.</summary>
    public ulong ReadUInt64()
    {
        Expect(WireType.Varint);
        return ReadVarint();
    }

    public uint ReadUInt32() => (uint)ReadUInt64();

    public bool ReadBool() => ReadUInt64() != 0;

    /// <summary>The value of a field of type sint64.</summary>
    public long ReadSInt64() => Unfold(ReadUInt64());

    /// <summary>The number that a varint of a field of type sint64 stands for.</summary>
    public static long Unfold(ulong folded) => (long)(folded >> 1) ^ -(long)(folded & 1);

    public ulong ReadFixed64()
    {
        Expect(WireType.Fixed64);
        return BinaryPrimitives.ReadUInt64LittleEndian(Take(sizeof(ulong)));
    }

    public uint ReadFixed32()
    {
        Expect(WireType.Fixed32);
        return BinaryPrimitives.ReadUInt32LittleEndian(Take(sizeof(uint)));
    }

    /// <summary>The value of a bytes or message field, in place.</summary>
    public ReadOnlySpan<byte> ReadBytes()
    {
        Expect(WireType.Bytes);
        var count = ReadVarint();
        return count <= (ulong)_rest.Length ? Take((int)count) : throw Malformed();
    }

    /// <summary>The value of a <see cref="V1.Etag"/> field.</summary>
    public Etag ReadEtag()
    {
        ulong epoch = 0, change = 0;
        var etag = new WireReader(ReadBytes());
        for (int field; (field = etag.ReadField()) != 0;)
        {
            if (field == V1.Etag.EpochFieldNumber)
                epoch = etag.ReadFixed64();
            else if (field == V1.Etag.ChangeFieldNumber)
                change = etag.ReadFixed64();
            else
                etag.Skip();
        }
        return new Etag(epoch, change);
    }

    /// <summary>The key and the value of an <see cref="V1.Entry"/> field, in place.</summary>
    public void ReadEntry(out ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        key = value = default;
        var entry = new WireReader(ReadBytes());
        for (int field; (field = entry.ReadField()) != 0;)
        {
            if (field == V1.Entry.KeyFieldNumber)
                key = entry.ReadBytes();
            else if (field == V1.Entry.ValueFieldNumber)
                value = entry.ReadBytes();
            else
                entry.Skip();
        }
    }

    /// <summary>Skips the value of the field just read.</summary>
    public void Skip()
    {
        switch ((WireType)_wireType)
        {
            case WireType.Varint: ReadVarint(); break;
            case WireType.Fixed64: Take(sizeof(ulong)); break;
            case WireType.Bytes: ReadBytes(); break;
            case WireType.Fixed32: Take(sizeof(uint)); break;
            default: throw Malformed();
        }
    }

    private static MalformedMessageException Malformed() => new();

    private ReadOnlySpan<byte> Take(int count)
    {
        if (count > _rest.Length)
            throw Malformed();
        var taken = _rest[..count];
        _rest = _rest[count..];
        return taken;
    }

    private readonly void Expect(WireType wireType)
    {
        if (_wireType != (uint)wireType)
            throw Malformed();
    }

    private enum WireType : uint
    {
        Varint = 0,
        Fixed64 = 1,
        Bytes = 2,
        Fixed32 = 5,
    }
}

/// <summary>The bytes of a request are not an encoded message.</summary>
internal sealed class MalformedMessageException() : Exception(Text)
{
    /// <summary>The message for the caller, whichever reader detected it.</summary>
    public const string Text =
        "The request is not a valid encoding of the method's message; nothing was applied. Encode it as the method's .proto file defines.";

    /// <summary>The message for the caller of an exchange, if the stream's own message is malformed.</summary>
    public const string StreamText = "The stream was ended because a message is not an encoded ExchangeRequest. Its unanswered calls may have been applied; "
        + "repeat them on a new stream, changes with the same request ids.";
}
