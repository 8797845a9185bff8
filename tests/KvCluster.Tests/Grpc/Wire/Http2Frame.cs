using System.Buffers.Binary;
using System.Text;

namespace KvCluster.Tests.Grpc.Wire;

/// <summary>One frame of HTTP/2, and the bytes that tests put into frames.</summary>
internal sealed record Http2Frame(byte Type, byte Flags, int Stream, byte[] Payload)
{
    public const byte Data = 0;
    public const byte Headers = 1;
    public const byte Reset = 3;
    public const byte Settings = 4;
    public const byte Ping = 6;
    public const byte GoAway = 7;

    public const byte None = 0;
    public const byte EndStream = 1;
    public const byte Ack = 1;
    public const byte EndHeaders = 4;

    public static readonly byte[] Preface = Encoding.ASCII.GetBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

    public byte[] ToBytes()
    {
        var bytes = new byte[9 + Payload.Length];
        bytes[0] = (byte)(Payload.Length >> 16);
        BinaryPrimitives.WriteUInt16BigEndian(bytes.AsSpan(1), (ushort)Payload.Length);
        bytes[3] = Type;
        bytes[4] = Flags;
        BinaryPrimitives.WriteInt32BigEndian(bytes.AsSpan(5), Stream);
        Payload.CopyTo(bytes, 9);
        return bytes;
    }

    /// <summary>Literal header fields without indexing or Huffman coding.</summary>
    public static byte[] HeaderBlock(params (string Name, string Value)[] fields)
    {
        var block = new MemoryStream();
        foreach (var (name, value) in fields)
        {
            block.WriteByte(0);
            block.WriteByte((byte)name.Length);
            block.Write(Encoding.ASCII.GetBytes(name));
            block.WriteByte((byte)value.Length);
            block.Write(Encoding.ASCII.GetBytes(value));
        }
        return block.ToArray();
    }

    public static Http2Frame ResetOf(int stream, int errorCode)
    {
        var payload = new byte[4];
        BinaryPrimitives.WriteInt32BigEndian(payload, errorCode);
        return new Http2Frame(Reset, None, stream, payload);
    }

    /// <summary>A gRPC message frame whose length and flag may be wrong.</summary>
    public static byte[] Message(byte[] payload, int? length = null, byte flag = 0)
    {
        var bytes = new byte[5 + payload.Length];
        bytes[0] = flag;
        BinaryPrimitives.WriteInt32BigEndian(bytes.AsSpan(1), length ?? payload.Length);
        payload.CopyTo(bytes, 5);
        return bytes;
    }
}
