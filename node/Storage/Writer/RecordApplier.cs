using System.Buffers.Binary;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Writer;

/// <summary>
/// The one way in which records change the trees: leader, follower and recovery (S7). Writer executor, or the opening thread. An
/// exception stops the replica.
/// </summary>
internal static class RecordApplier
{
    /// <summary>Key in the tree <c>meta</c> of the shard time: 8 bytes, little-endian, microseconds since 1970.</summary>
    private static ReadOnlySpan<byte> ShardTimeKey => "shard-time"u8;

    /// <summary>Applies a whole record.</summary>
    public static void Apply(WriteBatch batch, ReadOnlySpan<byte> body)
    {
        var change = new UInt128(RecordBody.Epoch(body), RecordBody.FirstChange(body));
        var count = 0;
        if (RecordBody.TryReadHeader(body, out var header) && (header.Flags & RecordFlags.Lz4) != 0)
            throw new CorruptStoreException($"Record {header} is compressed, which this version does not read.");
        ApplyOperations(batch, RecordBody.Payload(body), ref change, ref count);
        if (count != RecordBody.OperationCount(body) || RecordBody.LastChange(body) - RecordBody.FirstChange(body) != (ulong)Math.Max(count, 1) - 1)
            throw new CorruptStoreException($"Record {header} has {count} operations, which its header contradicts.");
        SetShardTime(batch, RecordBody.WallTimeMicroseconds(body));
    }

    /// <summary>Applies encoded operations; each takes one change. True if a key that one deletes was there.</summary>
    public static bool ApplyOperations(WriteBatch batch, ReadOnlySpan<byte> operations, ref UInt128 nextChange, ref int count)
    {
        var existed = false;
        Span<byte> header = stackalloc byte[KvValue.HeaderBytesMax];
        var reader = new OperationReader(operations);
        while (reader.MoveNext())
        {
            if (reader.Code == OperationCode.Delete)
                existed |= batch.Delete(TreeId.Kv, reader.Key);
            else
                batch.Put(TreeId.Kv, reader.Key, header[..KvValue.WriteHeader(header, nextChange, reader.ExpiryMilliseconds)], reader.Value);
            nextChange++;
            count++;
        }
        return existed;
    }

    /// <summary>Stores the shard time, which each record carries.</summary>
    public static void SetShardTime(WriteBatch batch, long microseconds)
    {
        Span<byte> value = stackalloc byte[sizeof(long)];
        BinaryPrimitives.WriteInt64LittleEndian(value, microseconds);
        batch.Put(TreeId.Meta, ShardTimeKey, value);
    }

    /// <summary>The shard time of a state; 0 before the first record.</summary>
    public static long ShardTime(ReadSnapshot snapshot) =>
        snapshot.TryGet(TreeId.Meta, ShardTimeKey, out var value) ? BinaryPrimitives.ReadInt64LittleEndian(value) : 0;
}
