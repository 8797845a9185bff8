using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A <see cref="V1.GetResponse"/>; its value lies in the snapshot's map and is copied once.</summary>
internal readonly ref struct GetAnswer(uint shard, UInt128 position, ulong? ageUs, bool found, ReadOnlySpan<byte> value, UInt128 etag) : IAnswer
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
