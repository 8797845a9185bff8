using Google.Protobuf;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client;

/// <summary>The request and the response of a read of one key, encoded and decoded without message objects.</summary>
internal static class GetMessages
{
    /// <summary>Encodes a <see cref="GetRequest"/>.</summary>
    public static ByteString Encode(ReadOnlySpan<byte> key, ReadOptions? read, bool withLife)
    {
        var readBytes = read?.CalculateSize() ?? 0;
        var life = withLife ? 1UL : 0;
        var bytes = new byte[
            WireWriter.BytesFieldSize(key.Length) + (read is null ? 0 : WireWriter.BytesFieldSize(readBytes)) + WireWriter.VarintFieldSize(life)];
        var writer = new WireWriter(bytes);
        writer.BytesField(GetRequest.KeyFieldNumber, key);
        if (read is not null)
        {
            writer.BytesHeader(GetRequest.ReadFieldNumber, readBytes);
            read.WriteTo(writer.Take(readBytes));
        }
        writer.VarintField(GetRequest.WithLifeFieldNumber, life);
        return UnsafeByteOperations.UnsafeWrap(bytes);
    }

    /// <summary>Decodes a <see cref="GetResponse"/>. The value stays where it is.</summary>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public static GetResult Decode(ByteString response)
    {
        var bytes = response.Memory;
        var (found, value, etag, position) = (false, default(KvValue), default(Etag), default(ShardPosition));
        var (age, life) = (default(TimeSpan?), default(KvLife));
        var reader = new WireReader(bytes.Span);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case GetResponse.PositionFieldNumber: position = reader.ReadPosition(out age); break;
                case GetResponse.FoundFieldNumber: found = reader.ReadBool(); break;
                case GetResponse.ValueFieldNumber:
                    var count = reader.ReadBytes().Length;
                    value = bytes.Slice(bytes.Length - reader.Left - count, count);
                    break;
                case GetResponse.EtagFieldNumber: etag = reader.ReadEtag(); break;
                case GetResponse.LifeFieldNumber: life = Life.Parser.ParseFrom(reader.ReadBytes()).ToLife(); break;
                default: reader.Skip(); break;
            }
        }
        return new GetResult(found, value, etag, position) { Age = age, Life = life };
    }
}
