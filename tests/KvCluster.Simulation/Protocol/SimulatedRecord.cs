using System.Buffers.Binary;
using System.Numerics;
using KvCluster.Replication.Log;

namespace KvCluster.Simulation.Protocol;

/// <summary>One resolved write of the simulated shard. The value is the id of the write, so every value reveals its origin.</summary>
internal readonly record struct SimulatedWrite(int Key, long WriteId);

/// <summary>A record of the simulated journal with its body: header, writes, CRC-32C.</summary>
internal sealed record SimulatedRecord(RecordRef Header, byte[] Body, SimulatedWrite[] Writes) : IVerifiedBody
{
    RecordRef IVerifiedBody.Record => Header;

    private const int HeaderBytes = 36;
    private const int WriteBytes = 12;

    public static SimulatedRecord Create(Etag etag, LogPosition previous, SimulatedWrite[] writes)
    {
        var body = new byte[HeaderBytes + (writes.Length * WriteBytes) + 4];
        etag.WriteTo(body);
        previous.Etag.WriteTo(body.AsSpan(16));
        BinaryPrimitives.WriteUInt32LittleEndian(body.AsSpan(32), previous.Checksum);
        for (var i = 0; i < writes.Length; i++)
        {
            BinaryPrimitives.WriteInt32LittleEndian(body.AsSpan(HeaderBytes + (i * WriteBytes)), writes[i].Key);
            BinaryPrimitives.WriteInt64LittleEndian(body.AsSpan(HeaderBytes + (i * WriteBytes) + 4), writes[i].WriteId);
        }

        var checksum = Checksum(body.AsSpan(0, body.Length - 4));
        BinaryPrimitives.WriteUInt32LittleEndian(body.AsSpan(body.Length - 4), checksum);
        return new SimulatedRecord(new RecordRef(etag, previous.Etag, checksum, previous.Checksum, body.Length, RecordFlags.None), body, writes);
    }

    public static bool TryParse(ReadOnlySpan<byte> body, out SimulatedRecord record)
    {
        record = null!;
        if (body.Length < HeaderBytes + 4 || (body.Length - HeaderBytes - 4) % WriteBytes != 0)
            return false;
        var checksum = BinaryPrimitives.ReadUInt32LittleEndian(body[^4..]);
        if (checksum != Checksum(body[..^4]))
            return false;
        var writes = new SimulatedWrite[(body.Length - HeaderBytes - 4) / WriteBytes];
        for (var i = 0; i < writes.Length; i++)
        {
            var at = body[(HeaderBytes + (i * WriteBytes))..];
            writes[i] = new SimulatedWrite(BinaryPrimitives.ReadInt32LittleEndian(at), BinaryPrimitives.ReadInt64LittleEndian(at[4..]));
        }

        var header = new RecordRef(
            Etag.ReadFrom(body), Etag.ReadFrom(body[16..]), checksum, BinaryPrimitives.ReadUInt32LittleEndian(body[32..]), body.Length, RecordFlags.None);
        record = new SimulatedRecord(header, body.ToArray(), writes);
        return true;
    }

    private static uint Checksum(ReadOnlySpan<byte> bytes)
    {
        var crc = uint.MaxValue;
        foreach (var value in bytes)
            crc = BitOperations.Crc32C(crc, value);
        return ~crc;
    }
}
