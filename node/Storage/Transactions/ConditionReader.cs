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
    public Etag Etag { get; private set; }

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
            Etag = Etag.ReadFrom(_rest);
            _rest = _rest[Etag.ByteLength..];
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

/// <summary>What must hold for a key, in the newest state before the request, for the request to be applied.</summary>
internal enum ConditionKind : byte
{
    /// <summary>The key was last written by the change with this etag. Etag 0 means that the key is absent.</summary>
    EtagEquals,

    /// <summary>The key exists.</summary>
    Exists,

    /// <summary>The key does not exist.</summary>
    Absent,

    /// <summary>The key exists and has exactly these bytes as its value.</summary>
    ValueEquals,
}
