using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A <see cref="V1.OpenSessionResponse"/>.</summary>
internal readonly struct SessionAnswer(uint shard, UInt128 etag, UInt128 session) : IAnswer
{
    public int Size => WireWriter.BytesFieldSize(WireWriter.PositionSize(shard)) + WireWriter.BytesFieldSize(WireWriter.SessionBytes);

    public void WriteTo(Span<byte> destination)
    {
        var writer = new WireWriter(destination);
        writer.PositionField(V1.OpenSessionResponse.PositionFieldNumber, shard, etag);
        writer.SessionField(V1.OpenSessionResponse.SessionFieldNumber, session);
    }
}
