using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>Iterates over the conditions that <see cref="WriteRequest.AddCondition"/> encoded. They never leave the process, so they are trusted.</summary>
internal ref struct ConditionReader(ReadOnlySpan<byte> conditions)
{
    private ReadOnlySpan<byte> _rest = conditions;

    /// <summary>What must hold.</summary>
    public ConditionKind Kind { get; private set; }

    /// <summary>The key it must hold for.</summary>
    public ReadOnlySpan<byte> Key { get; private set; }

    /// <summary>For <see cref="ConditionKind.EtagEquals"/>.</summary>
    public UInt128 Etag { get; private set; }

    /// <summary>For <see cref="ConditionKind.ValueEquals"/>.</summary>
    public ReadOnlySpan<byte> Value { get; private set; }

    /// <summary>Moves to the next condition; false at the end.</summary>
    public bool MoveNext()
    {
        if (_rest.IsEmpty)
            return false;
        Kind = (ConditionKind)_rest[0];
        _rest = _rest[1..];
        Key = ReadBytes();
        if (Kind == ConditionKind.EtagEquals)
        {
            Etag = BinaryPrimitives.ReadUInt128LittleEndian(_rest);
            _rest = _rest[16..];
        }
        else if (Kind == ConditionKind.ValueEquals)
        {
            Value = ReadBytes();
        }
        return true;
    }

    private ReadOnlySpan<byte> ReadBytes()
    {
        _ = Varint.TryRead(ref _rest, out var length);
        var bytes = _rest[..(int)length];
        _rest = _rest[(int)length..];
        return bytes;
    }
}
