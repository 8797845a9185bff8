using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>Iterates over the conditions that a <see cref="WriteRequest"/> has encoded. They never leave the process, so they are trusted.</summary>
internal ref struct ConditionReader(ReadOnlySpan<byte> conditions)
{
    private ReadOnlySpan<byte> _rest = conditions;

    /// <summary>What must hold.</summary>
    public ConditionKind Kind { get; private set; }

    /// <summary>The key it must hold for, that of the set, or the first one of the range, which is empty for the first key there is.</summary>
    public ReadOnlySpan<byte> Key { get; private set; }

    /// <summary>At which key the range ends; empty for the end of all keys.</summary>
    public ReadOnlySpan<byte> KeyEnd { get; private set; }

    /// <summary>For <see cref="ConditionKind.EtagEquals"/> and <see cref="ConditionKind.EtagRelates"/>.</summary>
    public Etag Etag { get; private set; }

    /// <summary>For <see cref="ConditionKind.ValueEquals"/> and <see cref="ConditionKind.ValueRelates"/>; for sets the member.</summary>
    public ReadOnlySpan<byte> Value { get; private set; }

    /// <summary>How what is stored must relate to <see cref="Etag"/> or <see cref="Value"/>.</summary>
    public ConditionRelation Relation { get; private set; }

    /// <summary>How many keys the range must have; null if any number will do.</summary>
    public ulong? Keys { get; private set; }

    /// <summary>The greatest etag that the range must have, <see cref="Etag.None"/> without a key; null if any will do.</summary>
    public Etag? Greatest { get; private set; }

    /// <summary>Moves to the next condition; false at the end.</summary>
    public bool MoveNext()
    {
        if (_rest.IsEmpty)
            return false;
        Kind = (ConditionKind)ReadByte();
        Key = ReadBytes();
        switch (Kind)
        {
            case ConditionKind.EtagEquals:
                Etag = ReadEtag();
                break;
            case ConditionKind.ValueEquals or ConditionKind.SetHas or ConditionKind.SetLacks:
                Value = ReadBytes();
                break;
            case ConditionKind.EtagRelates:
                Relation = (ConditionRelation)ReadByte();
                Etag = ReadEtag();
                break;
            case ConditionKind.ValueRelates:
                Relation = (ConditionRelation)ReadByte();
                Value = ReadBytes();
                break;
            case ConditionKind.Range:
                KeyEnd = ReadBytes();
                var told = ReadByte();
                _ = Varint.TryRead(ref _rest, out var keys);
                var greatest = ReadEtag();
                Keys = (told & 1) != 0 ? keys : null;
                Greatest = (told & 2) != 0 ? greatest : null;
                break;
            default:
                break;
        }
        return true;
    }

    private byte ReadByte()
    {
        var value = _rest[0];
        _rest = _rest[1..];
        return value;
    }

    private Etag ReadEtag()
    {
        var etag = Etag.ReadFrom(_rest);
        _rest = _rest[Etag.ByteLength..];
        return etag;
    }

    private ReadOnlySpan<byte> ReadBytes()
    {
        _ = Varint.TryRead(ref _rest, out var length);
        var bytes = _rest[..(int)length];
        _rest = _rest[(int)length..];
        return bytes;
    }
}

/// <summary>What must hold, in the newest state before the request, for the request to be applied.</summary>
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

    /// <summary>The key exists, and its etag compares with another one as given.</summary>
    EtagRelates,

    /// <summary>The key exists, and its value compares with another one as given, byte by byte.</summary>
    ValueRelates,

    /// <summary>A range has this many keys, or this greatest etag.</summary>
    Range,

    /// <summary>The set has the member.</summary>
    SetHas,

    /// <summary>The set does not have the member.</summary>
    SetLacks,
}

/// <summary>How what is stored compares with what a condition names.</summary>
internal enum ConditionRelation : byte
{
    /// <summary>What is stored equals the operand.</summary>
    Equal = 1,

    /// <summary>What is stored differs from the operand.</summary>
    NotEqual = 2,

    /// <summary>What is stored is less.</summary>
    Less = 3,

    /// <summary>What is stored is greater.</summary>
    Greater = 4,
}
