using System.Buffers.Binary;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Encoding;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// Where a List goes on, as the token of its next page says. A token has that of the snapshot (8 bytes, 0 if the page begins in another shard), whether the key
/// itself is the bound (1 byte), a checksum of the listing (4 bytes), and a key: the last one of the page before, or the bound between the shards. Nodes write
/// and check it here; <see cref="RouteKeys"/> finds the shard of its key, and the client library makes a text of it.
/// </summary>
internal readonly struct ListPageToken
{
    private const int BoundAt = KeptSnapshots.TokenBytes;
    private const int ChecksumAt = BoundAt + 1;
    private const int KeyAt = ChecksumAt + sizeof(uint);

    private readonly bool _isBound;
    private readonly ReadOnlyMemory<byte> _key;

    private ListPageToken(ulong snapshot, bool isBound, ReadOnlyMemory<byte> key) => (Snapshot, _isBound, _key) = (snapshot, isBound, key);

    /// <summary>The token of the snapshot of the page before; 0 if this page begins in a new one.</summary>
    public ulong Snapshot { get; }

    /// <summary>Reads a token. If it is none, or of another listing, the error says so.</summary>
    /// <param name="token">As a request has it; not empty.</param>
    /// <param name="checksum">That of the request's listing.</param>
    /// <param name="place">Where the request's page begins.</param>
    public static ApiError? TryRead(byte[] token, uint checksum, out ListPageToken place)
    {
        place = default;
        if (token.Length is <= KeyAt or > KeyAt + KvLimits.KeyBytesMax || token[BoundAt] > 1)
            return ApiErrors.BadRequest("The page token is none that came with a page.");
        if (BinaryPrimitives.ReadUInt32BigEndian(token.AsSpan(ChecksumAt)) != checksum)
            return ApiErrors.BadRequest("The page token is of another listing: range, order, and whether values are returned must be the same for each page.");
        place = new ListPageToken(BinaryPrimitives.ReadUInt64BigEndian(token), token[BoundAt] == 1, token.AsMemory(KeyAt));
        return null;
    }

    /// <summary>The part of a range that is left.</summary>
    public KeyBounds RestOf(in KeyBounds range, bool isReverse) => _isBound ? range.From(_key, isReverse) : range.Behind(_key, isReverse);

    /// <summary>Appends the token of the next page to an answer.</summary>
    public static void Append(MessageBytes answer, ulong snapshot, bool isBound, uint checksum, ReadOnlySpan<byte> key)
    {
        var writer = new WireWriter(answer.Append(WireWriter.BytesFieldSize(KeyAt + key.Length)));
        writer.BytesHeader(ListResponse.NextPageTokenFieldNumber, KeyAt + key.Length);
        var token = writer.Take(KeyAt + key.Length);
        BinaryPrimitives.WriteUInt64BigEndian(token, snapshot);
        token[BoundAt] = isBound ? (byte)1 : (byte)0;
        BinaryPrimitives.WriteUInt32BigEndian(token[ChecksumAt..], checksum);
        key.CopyTo(token[KeyAt..]);
    }

    /// <summary>The checksum of a listing: of all fields that must be the same for each page.</summary>
    public static uint ChecksumOf(bool isReverse, bool isKeysOnly, byte[] start, byte[] end, byte[] prefix)
    {
        var state = Crc32C.Extend(uint.MaxValue, [isReverse ? (byte)1 : (byte)0, isKeysOnly ? (byte)1 : (byte)0]);
        Span<byte> length = stackalloc byte[sizeof(int)];
        foreach (var bytes in (byte[][])[start, end, prefix])
        {
            BinaryPrimitives.WriteInt32BigEndian(length, bytes.Length);
            state = Crc32C.Extend(Crc32C.Extend(state, length), bytes);
        }
        return state;
    }
}
