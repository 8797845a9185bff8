namespace KvCluster.Storage.Writer;

/// <summary>Encodes the operations of a payload (FORMAT.md, "Operations"); <see cref="OperationReader"/> decodes them.</summary>
internal static class Operations
{
    /// <summary>Appends a put. <paramref name="expiryMilliseconds"/>: shard time, since 1970, at which the key is due; 0 = never.</summary>
    public static void Put(ByteBuffer payload, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, ulong expiryMilliseconds = 0)
    {
        payload.Append([(byte)OperationCode.Put]);
        payload.AppendWithLength(key);
        payload.Append([(byte)(expiryMilliseconds == 0 ? 0 : KvValue.ExpiryFlag)]);
        if (expiryMilliseconds != 0)
            payload.Advance(Varint.Write(payload.Reserve(Varint.BytesMax), expiryMilliseconds));
        payload.AppendWithLength(value);
    }

    /// <summary>Appends a delete.</summary>
    public static void Delete(ByteBuffer payload, ReadOnlySpan<byte> key)
    {
        payload.Append([(byte)OperationCode.Delete]);
        payload.AppendWithLength(key);
    }

    /// <summary>Appends the opening of a session.</summary>
    public static void SessionOpen(ByteBuffer payload) => payload.Append([(byte)OperationCode.SessionOpen]);

    /// <summary>Appends the end of a session.</summary>
    public static void SessionEnd(ByteBuffer payload, UInt128 session)
    {
        payload.Append([(byte)OperationCode.SessionEnd]);
        payload.Advance(Varint.Write(payload.Reserve(Varint.BytesMax), (ulong)(session >> 64)));
        payload.Advance(Varint.Write(payload.Reserve(Varint.BytesMax), (ulong)session));
    }
}
