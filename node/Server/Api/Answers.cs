using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A response that can be encoded in place. Implemented by one struct for each response message.</summary>
internal interface IAnswer
{
    /// <summary>Bytes of the encoded message.</summary>
    int Size { get; }

    /// <summary>Encodes it into exactly that many bytes.</summary>
    void WriteTo(Span<byte> destination);
}

/// <summary>A <see cref="V1.PutResponse"/> or a <see cref="V1.DeleteResponse"/>, which differ only in <c>existed</c>.</summary>
internal readonly struct ChangeAnswer(ShardId shard, Etag etag, bool existed) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(existed ? 1u : 0u);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, etag);
        writer.VarintField(2, existed ? 1u : 0u);
    }
}

/// <summary>A <see cref="V1.WriteResponse"/>.</summary>
/// <param name="shard">The shard.</param>
/// <param name="etag">The etag of the last operation.</param>
/// <param name="deleted">How many keys its deletes removed.</param>
/// <param name="areDeletes">For each operation whether it is a delete, if results are wanted; else null.</param>
internal readonly struct WriteAnswer(ShardId shard, Etag etag, int deleted, bool[]? areDeletes) : IAnswer
{
    private readonly bool[] _areDeletes = areDeletes ?? [];

    // The engine counts the keys that were removed. That tells of each delete whether its key existed if all did or none.
    private readonly bool _isKnown = areDeletes is null || deleted == 0 || deleted == areDeletes.Count(static isDelete => isDelete);

    public int Size
    {
        get
        {
            var size = WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize((uint)deleted);
            foreach (var isDelete in _areDeletes)
                size += WireWriter.BytesFieldSize(ResultSize(isDelete));
            return size;
        }
    }

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.WriteResponse.PositionFieldNumber, shard, etag);
        for (var index = 0; index < _areDeletes.Length; index++)
        {
            var isDelete = _areDeletes[index];
            writer.BytesHeader(V1.WriteResponse.ResultsFieldNumber, ResultSize(isDelete));
            writer.EtagField(V1.OperationResult.EtagFieldNumber, new Etag(etag.Epoch, etag.Change - (ulong)(_areDeletes.Length - 1 - index)));
            if (isDelete && _isKnown)
                writer.OptionalBoolField(V1.OperationResult.ExistedFieldNumber, deleted > 0);
        }
        writer.VarintField(V1.WriteResponse.DeletedFieldNumber, (uint)deleted);
    }

    private int ResultSize(bool isDelete) => WireWriter.BytesFieldSize(WireWriter.EtagBytes) + (isDelete && _isKnown ? 2 : 0);
}

/// <summary>A response that was already encoded, piece by piece.</summary>
internal readonly ref struct EncodedAnswer(ReadOnlySpan<byte> message) : IAnswer
{
    private readonly ReadOnlySpan<byte> _message = message;

    public int Size => _message.Length;

    public void WriteTo(Span<byte> destination) => _message.CopyTo(destination);
}

/// <summary>A <see cref="V1.GetResponse"/>. Its value points into the snapshot's mapping and is copied once.</summary>
internal readonly ref struct GetAnswer(ShardId shard, Etag position, ulong? ageUs, bool found, ReadOnlySpan<byte> value, Etag etag) : IAnswer
{
    private readonly ReadOnlySpan<byte> _value = value;

    public int Size =>
        WireWriter.BytesFieldSize(WireWriter.PositionSize(shard, ageUs))
        + (found ? WireWriter.VarintFieldSize(1) + WireWriter.BytesFieldSize(_value.Length) + WireWriter.BytesFieldSize(WireWriter.EtagBytes) : 0);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, position, ageUs);
        if (!found)
            return;
        writer.VarintField(2, 1);
        writer.BytesField(3, _value);
        writer.EtagField(4, etag);
    }
}

/// <summary>A <see cref="V1.OpenSessionResponse"/>.</summary>
internal readonly struct SessionAnswer(ShardId shard, Etag etag, UInt128 session) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.BytesFieldSize(WireWriter.SessionBytes);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.OpenSessionResponse.PositionFieldNumber, shard, etag);
        writer.SessionField(V1.OpenSessionResponse.SessionFieldNumber, session);
    }
}

/// <summary>A <see cref="V1.KeepAliveResponse"/>.</summary>
internal readonly struct KeepAliveAnswer(ShardId shard, Etag etag, ulong[] leftMs) : IAnswer
{
    private readonly int _leftBytes = leftMs.Sum(WireWriter.VarintSize);

    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + (leftMs.Length == 0 ? 0 : WireWriter.BytesFieldSize(_leftBytes));

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.KeepAliveResponse.PositionFieldNumber, shard, etag);
        if (leftMs.Length > 0)
            writer.PackedField(V1.KeepAliveResponse.LeftMsFieldNumber, _leftBytes, leftMs);
    }
}

/// <summary>A <see cref="V1.EndSessionResponse"/>.</summary>
internal readonly struct EndSessionAnswer(ShardId shard, Etag etag, bool existed, ulong deleted) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(existed ? 1u : 0u) + WireWriter.VarintFieldSize(deleted);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.EndSessionResponse.PositionFieldNumber, shard, etag);
        writer.VarintField(V1.EndSessionResponse.ExistedFieldNumber, existed ? 1u : 0u);
        writer.VarintField(V1.EndSessionResponse.DeletedFieldNumber, deleted);
    }
}

/// <summary>Receives the outcome of a call, exactly once, on any thread. Implemented for unary calls and for calls of an exchange.</summary>
internal interface IReplySink
{
    /// <summary>Larger answers are refused, so an answer built in pieces need not be continued beyond this.</summary>
    int ReplyBytesMax { get; }

    /// <summary>Takes an answer. Not null if there was no space for it; the call was then refused with the returned error.</summary>
    ApiError? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    /// <summary>
    /// Takes the outcome of a change that was applied. It is told whatever its size and however little space is left, because a refusal would say that nothing
    /// was applied.
    /// </summary>
    void AnswerChange<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    void Refuse(ApiError refusal);
}
