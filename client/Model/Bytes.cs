using Google.Protobuf;
using KvCluster.Wire;

namespace KvCluster.Client;

/// <summary>Converts memory and text to the fields of messages, without a copy where possible.</summary>
internal static class Bytes
{
    /// <summary>The message refers to the caller's memory, which must not change until the call is answered.</summary>
    public static ByteString ToByteString(this ReadOnlyMemory<byte> memory) => memory.IsEmpty ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(memory);

    /// <inheritdoc cref="ToByteString(ReadOnlyMemory{byte})"/>
    public static ByteString ToByteString(this KvKey key) => key.Memory.ToByteString();

    /// <inheritdoc cref="ToByteString(ReadOnlyMemory{byte})"/>
    public static ByteString ToByteString(this KvValue value) => value.Memory.ToByteString();

    public static V1.Etag ToMessage(this Etag etag) => new() { Epoch = etag.Epoch, Change = etag.Change };

    public static Etag ToEtag(this V1.Etag? etag) => etag is null ? default : new Etag(etag.Epoch, etag.Change);

    public static KvEntry ToEntry(this V1.Entry entry) => new(entry.Key.Memory, entry.Value.Memory, entry.Etag.ToEtag()) { Life = entry.Life.ToLife() };

    public static KvLife ToLife(this V1.Life? life) =>
        life is null ? default : new KvLife(life.HasLeftMs ? TimeSpan.FromMilliseconds(life.LeftMs) : null, life.Owner?.ToEtag());

    /// <summary>Reads a field that holds a <see cref="V1.Position"/>.</summary>
    public static ShardPosition ReadPosition(this ref WireReader reader) => reader.ReadPosition(out _);

    /// <summary>The same with the age of the state; null if it is not told.</summary>
    public static ShardPosition ReadPosition(this ref WireReader reader, out TimeSpan? age)
    {
        age = null;
        uint shard = 0;
        ulong lineage = 0;
        Etag etag = default;
        var position = new WireReader(reader.ReadBytes());
        for (int field; (field = position.ReadField()) != 0;)
        {
            if (field == V1.Position.ShardFieldNumber)
                shard = position.ReadUInt32();
            else if (field == V1.Position.EtagFieldNumber)
                etag = position.ReadEtag();
            else if (field == V1.Position.LineageFieldNumber)
                lineage = position.ReadFixed64();
            else if (field == V1.Position.AgeUsFieldNumber)
                age = TimeSpan.FromMicroseconds(position.ReadUInt64());
            else
                position.Skip();
        }
        return new ShardPosition(shard, etag) { Lineage = lineage };
    }

    public static ShardPosition ToPosition(this V1.Position? position) =>
        position is null ? default : new ShardPosition(position.Shard, position.Etag.ToEtag()) { Lineage = position.Lineage };
}
