using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>A <see cref="V1.PutResponse"/> or a <see cref="V1.DeleteResponse"/>, which differ only in <c>existed</c>.</summary>
internal readonly struct ChangeAnswer(LineageShard shard, Etag etag, bool existed) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(existed ? 1u : 0u);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, etag);
        writer.VarintField(2, existed ? 1u : 0u);
    }
}

/// <summary>
/// A <see cref="V1.IncrementResponse"/>, a <see cref="V1.SetAddResponse"/> or a <see cref="V1.SetRemoveResponse"/>, whose second field is a number.
/// </summary>
/// <param name="shard">The shard.</param>
/// <param name="etag">The etag of the change.</param>
/// <param name="number">The number, as it is encoded.</param>
internal readonly struct NumberAnswer(LineageShard shard, Etag etag, ulong number) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(number);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, etag);
        writer.VarintField(2, number);
    }
}

/// <summary>A <see cref="V1.BulkLoadResponse"/>.</summary>
internal readonly struct ChunkAnswer(ulong chunk, LineageShard shard, Etag etag) : IAnswer
{
    public int Size => WireWriter.VarintFieldSize(chunk) + WireWriter.BytesFieldSize(WireWriter.PositionSize(shard));

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.VarintField(V1.BulkLoadResponse.ChunkFieldNumber, chunk);
        writer.PositionField(V1.BulkLoadResponse.PositionFieldNumber, shard, etag);
    }
}

/// <summary>A <see cref="V1.PutResponse"/> with the key that the shard has numbered.</summary>
internal readonly ref struct NumberedPutAnswer(LineageShard shard, Etag etag, ReadOnlySpan<byte> key) : IAnswer
{
    private readonly ReadOnlySpan<byte> _key = key;

    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.BytesFieldSize(_key.Length);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.PutResponse.PositionFieldNumber, shard, etag);
        writer.BytesField(V1.PutResponse.KeyFieldNumber, _key);
    }
}

/// <summary>A <see cref="V1.DeleteRangeResponse"/>. <paramref name="nextStart"/>: empty if everything is removed.</summary>
internal readonly ref struct DeleteRangeAnswer(LineageShard shard, Etag etag, ulong deleted, ReadOnlySpan<byte> nextStart) : IAnswer
{
    private readonly ReadOnlySpan<byte> _nextStart = nextStart;

    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard))
        + WireWriter.VarintFieldSize(deleted) + (_nextStart.IsEmpty ? 0 : WireWriter.BytesFieldSize(_nextStart.Length));

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.DeleteRangeResponse.PositionFieldNumber, shard, etag);
        writer.VarintField(V1.DeleteRangeResponse.DeletedFieldNumber, deleted);
        if (!_nextStart.IsEmpty)
            writer.BytesField(V1.DeleteRangeResponse.NextStartFieldNumber, _nextStart);
    }
}

/// <summary>A <see cref="V1.WriteResponse"/>.</summary>
/// <param name="shard">The shard.</param>
/// <param name="etag">The etag of the last operation that takes a change.</param>
/// <param name="deleted">How many keys its deletes removed.</param>
/// <param name="results">The results of its operations; null if they are not wanted.</param>
internal readonly struct WriteAnswer(LineageShard shard, Etag etag, int deleted, byte[]? results) : IAnswer
{
    public int Size =>
        WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + OperationResultMessages.Size(results) + WireWriter.VarintFieldSize((uint)deleted);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.WriteResponse.PositionFieldNumber, shard, etag);
        OperationResultMessages.Write(ref writer, V1.WriteResponse.ResultsFieldNumber, results);
        writer.VarintField(V1.WriteResponse.DeletedFieldNumber, (uint)deleted);
    }
}

/// <summary>A <see cref="V1.TransactResponse"/>.</summary>
/// <param name="shard">The shard.</param>
/// <param name="etag">The etag of the last operation that takes a change, or of the state that was read.</param>
/// <param name="failedCondition">The index of the first condition that did not hold; -1 if all held.</param>
/// <param name="results">The results of the operations.</param>
internal readonly struct TransactAnswer(LineageShard shard, Etag etag, int failedCondition, byte[]? results) : IAnswer
{
    public int Size =>
        WireWriter.BytesFieldSize(WireWriter.PositionSize(shard))
            + (failedCondition < 0 ? WireWriter.VarintFieldSize(1) : WireWriter.OptionalVarintFieldSize((uint)failedCondition))
        + OperationResultMessages.Size(results);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.TransactResponse.PositionFieldNumber, shard, etag);
        writer.VarintField(V1.TransactResponse.SucceededFieldNumber, failedCondition < 0 ? 1u : 0u);
        OperationResultMessages.Write(ref writer, V1.TransactResponse.ResultsFieldNumber, results);
        if (failedCondition >= 0)
            writer.OptionalVarintField(V1.TransactResponse.FailedConditionFieldNumber, (uint)failedCondition);
    }
}

/// <summary>A <see cref="V1.OpenSessionResponse"/>.</summary>
internal readonly struct SessionAnswer(LineageShard shard, Etag etag, UInt128 session) : IAnswer
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
internal readonly struct KeepAliveAnswer(LineageShard shard, Etag etag, ulong[] leftMs) : IAnswer
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
internal readonly struct EndSessionAnswer(LineageShard shard, Etag etag, bool existed, ulong deleted) : IAnswer
{
    public int Size =>
        WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(existed ? 1u : 0u) + WireWriter.VarintFieldSize(deleted);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.EndSessionResponse.PositionFieldNumber, shard, etag);
        writer.VarintField(V1.EndSessionResponse.ExistedFieldNumber, existed ? 1u : 0u);
        writer.VarintField(V1.EndSessionResponse.DeletedFieldNumber, deleted);
    }
}
