using System.Text;
using Google.Protobuf;

namespace KvCluster.Client;

/// <summary>Memory and text as messages hold them, without a copy where there need not be one.</summary>
internal static class Bytes
{
    /// <summary>The message points at the caller's memory, which must not change until the call is answered.</summary>
    public static ByteString ToByteString(this ReadOnlyMemory<byte> memory) => memory.IsEmpty ? ByteString.Empty : UnsafeByteOperations.UnsafeWrap(memory);

    public static ReadOnlyMemory<byte> Utf8(string text) => Encoding.UTF8.GetBytes(text);

    public static Etag ToEtag(this V1.Etag? etag) => etag is null ? default : new Etag(etag.Epoch, etag.Change);

    public static ShardPosition ToPosition(this V1.Position? position) =>
        position is null ? default : new ShardPosition(position.Shard, position.Etag.ToEtag());
}
