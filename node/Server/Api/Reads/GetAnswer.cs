using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>A <see cref="V1.GetResponse"/>. Its value points into the snapshot's mapping and is copied once.</summary>
internal readonly ref struct GetAnswer(
    LineageShard shard, Etag position, ulong? ageUs, bool found, ReadOnlySpan<byte> value, Etag etag, LifeField life = default) : IAnswer
{
    private readonly ReadOnlySpan<byte> _value = value;

    public int Size =>
        WireWriter.BytesFieldSize(WireWriter.PositionSize(shard, ageUs))
        + (found ? WireWriter.VarintFieldSize(1) + WireWriter.BytesFieldSize(_value.Length) + WireWriter.BytesFieldSize(WireWriter.EtagBytes) + life.Size : 0);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(1, shard, position, ageUs);
        if (!found)
            return;
        writer.VarintField(2, 1);
        writer.BytesField(3, _value);
        writer.EtagField(4, etag);
        life.WriteTo(ref writer, V1.GetResponse.LifeFieldNumber);
    }
}
