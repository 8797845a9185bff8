using System.Buffers.Binary;
using System.Numerics;

namespace KvCluster.Wire;

/// <summary>Writes fields of a protobuf message into memory of exactly the right size, which the Size methods compute.</summary>
internal ref struct WireWriter(Span<byte> destination)
{
    /// <summary>Size of an etag's message.</summary>
    public const int EtagBytes = 2 * (1 + sizeof(ulong));

    /// <summary>Size of a session's id.</summary>
    public const int SessionBytes = 16;

    private Span<byte> _rest = destination;

    /// <summary>Bytes that are not written yet.</summary>
    public readonly int Left => _rest.Length;

    /// <summary>Size of a varint.</summary>
    public static int VarintSize(ulong value) => (BitOperations.Log2(value | 1) / 7) + 1;

    /// <summary>Size of a varint field with a number below 16. A field with the value 0 is omitted.</summary>
    public static int VarintFieldSize(ulong value) => value == 0 ? 0 : 1 + VarintSize(value);

    /// <summary>Size of an optional varint field with a number below 16, which is there also if it is 0.</summary>
    public static int OptionalVarintFieldSize(ulong value) => 1 + VarintSize(value);

    /// <summary>The value of a field of type sint64 as it is written as a varint.</summary>
    public static ulong Fold(long value) => (ulong)((value << 1) ^ (value >> 63));

    /// <summary>Size of a fixed64 field with a number below 16. A field with the value 0 is omitted.</summary>
    public static int Fixed64FieldSize(ulong value) => value == 0 ? 0 : 1 + sizeof(ulong);

    /// <summary>Size of a bytes or message field with a number below 16.</summary>
    public static int BytesFieldSize(int count) => 1 + VarintSize((uint)count) + count;

    /// <summary>Size of a <see cref="V1.Position"/> without its tag.</summary>
    public static int PositionSize(LineageShard shard, ulong? ageUs = null) =>
        VarintFieldSize(shard.Shard.Value)
            + BytesFieldSize(EtagBytes) + (ageUs is { } age ? OptionalVarintFieldSize(age) : 0) + Fixed64FieldSize(shard.Lineage);

    /// <summary>Size of a <see cref="V1.RequestId"/> without its tag.</summary>
    public static int RequestIdSize(LineageShard shard, ulong sequence, ulong lowestOpen) =>
        BytesFieldSize(SessionBytes)
            + VarintFieldSize(sequence) + VarintFieldSize(lowestOpen) + VarintFieldSize(shard.Shard.Value) + Fixed64FieldSize(shard.Lineage);

    public void VarintField(int field, ulong value)
    {
        if (value == 0)
            return;
        Byte((byte)(field << 3));
        Varint(value);
    }

    /// <summary>Writes an optional field, which is there also if it is false.</summary>
    public void OptionalBoolField(int field, bool value)
    {
        Byte((byte)(field << 3));
        Byte(value ? (byte)1 : (byte)0);
    }

    /// <summary>Writes an optional field, which is there also if it is 0.</summary>
    public void OptionalVarintField(int field, ulong value)
    {
        Byte((byte)(field << 3));
        Varint(value);
    }

    public void BytesField(int field, scoped ReadOnlySpan<byte> value)
    {
        BytesHeader(field, value.Length);
        value.CopyTo(_rest);
        _rest = _rest[value.Length..];
    }

    /// <summary>Writes the tag and length of a bytes or message field.</summary>
    public void BytesHeader(int field, int count)
    {
        Byte((byte)((field << 3) | 2));
        Varint((uint)count);
    }

    public void EtagField(int field, Etag etag)
    {
        BytesHeader(field, EtagBytes);
        Fixed64Field(1, etag.Epoch);
        Fixed64Field(2, etag.Change);
    }

    public void PositionField(int field, LineageShard shard, Etag etag, ulong? ageUs = null)
    {
        BytesHeader(field, PositionSize(shard, ageUs));
        VarintField(1, shard.Shard.Value);
        EtagField(2, etag);
        if (ageUs is { } age)
            OptionalVarintField(3, age);
        if (shard.Lineage != 0)
            Fixed64Field(4, shard.Lineage);
    }

    public void RequestIdField(int field, UInt128 session, LineageShard shard, ulong sequence, ulong lowestOpen)
    {
        BytesHeader(field, RequestIdSize(shard, sequence, lowestOpen));
        VarintField(2, sequence);
        VarintField(3, lowestOpen);
        VarintField(4, shard.Shard.Value);
        SessionField(5, session);
        if (shard.Lineage != 0)
            Fixed64Field(6, shard.Lineage);
    }

    public void SessionField(int field, UInt128 session)
    {
        BytesHeader(field, SessionBytes);
        BinaryPrimitives.WriteUInt128BigEndian(Take(SessionBytes), session);
    }

    /// <summary>Writes a repeated varint field.</summary>
    /// <param name="field">Its number.</param>
    /// <param name="count">The sum of <see cref="VarintSize"/> of the values.</param>
    /// <param name="values">The values.</param>
    public void PackedField(int field, int count, scoped ReadOnlySpan<ulong> values)
    {
        BytesHeader(field, count);
        foreach (var value in values)
            Varint(value);
    }

    /// <summary>Takes space for content that someone else writes.</summary>
    public Span<byte> Take(int count)
    {
        var taken = _rest[..count];
        _rest = _rest[count..];
        return taken;
    }

    private void Fixed64Field(int field, ulong value)
    {
        Byte((byte)((field << 3) | 1));
        BinaryPrimitives.WriteUInt64LittleEndian(_rest, value);
        _rest = _rest[sizeof(ulong)..];
    }

    private void Varint(ulong value)
    {
        while (value >= 0x80)
        {
            Byte((byte)(value | 0x80));
            value >>= 7;
        }
        Byte((byte)value);
    }

    private void Byte(byte value)
    {
        _rest[0] = value;
        _rest = _rest[1..];
    }
}
