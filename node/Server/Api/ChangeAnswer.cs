using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A <see cref="V1.PutResponse"/>, <see cref="V1.DeleteResponse"/> or <see cref="V1.WriteResponse"/>, which differ only in <c>existed</c>.</summary>
internal readonly struct ChangeAnswer(uint shard, UInt128 etag, bool existed) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.VarintFieldSize(existed ? 1u : 0u);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, etag);
        writer.VarintField(2, existed ? 1u : 0u);
    }
}
