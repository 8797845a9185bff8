using System.Buffers.Binary;

namespace KvCluster.Storage.Encoding;

/// <summary>Encodes the operations of a payload (FORMAT.md, "Operations"); <c>OperationReader</c> decodes them.</summary>
internal static class Operations
{
    /// <summary>Bytes of a session's id.</summary>
    public const int SessionBytes = 16;

    /// <summary>Appends a put. <paramref name="expiryMilliseconds"/>: the shard time at which the key expires, in milliseconds since 1970; 0 = never.</summary>
    public static void Put(ByteBuffer payload, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, ulong expiryMilliseconds = 0)
    {
        // One reservation for all parts: a load makes millions of puts.
        var place = payload.Reserve(2 + (3 * Varint.BytesMax) + key.Length + value.Length);
        place[0] = (byte)OperationCode.Put;
        var count = 1 + Varint.Write(place[1..], (ulong)key.Length);
        key.CopyTo(place[count..]);
        count += key.Length;
        place[count++] = expiryMilliseconds == 0 ? (byte)0 : KvValue.ExpiryFlag;
        if (expiryMilliseconds != 0)
            count += Varint.Write(place[count..], expiryMilliseconds);
        count += Varint.Write(place[count..], (ulong)value.Length);
        value.CopyTo(place[count..]);
        payload.Advance(count + value.Length);
    }

    /// <summary>Appends a delete.</summary>
    public static void Delete(ByteBuffer payload, ReadOnlySpan<byte> key)
    {
        payload.Append([(byte)OperationCode.Delete]);
        payload.AppendWithLength(key);
    }

    /// <summary>Appends an operation that names a member of a set: <see cref="OperationCode.SetAdd"/> or <see cref="OperationCode.SetRemove"/>.</summary>
    public static void SetMember(ByteBuffer payload, OperationCode code, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        payload.Append([(byte)code]);
        payload.AppendWithLength(key);
        payload.AppendWithLength(member);
    }

    /// <summary>Appends a delete of the members of a set before one, which stays; empty: of all members, and with them of the set.</summary>
    public static void SetDelete(ByteBuffer payload, ReadOnlySpan<byte> key, ReadOnlySpan<byte> end) => SetMember(payload, OperationCode.SetDelete, key, end);

    /// <summary>Appends a delete of the keys from one (empty: the first) up to another, which stays (empty: to the end).</summary>
    public static void DeleteRange(ByteBuffer payload, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        payload.Append([(byte)OperationCode.DeleteRange]);
        payload.AppendWithLength(from);
        payload.AppendWithLength(to);
    }

    /// <summary>Appends the opening of a session.</summary>
    public static void SessionOpen(ByteBuffer payload, UInt128 session, SessionOwner owner)
    {
        payload.Append([(byte)OperationCode.SessionOpen]);
        AppendSession(payload, session);
        BinaryPrimitives.WriteUInt64LittleEndian(payload.Reserve(sizeof(ulong)), owner.Value);
        payload.Advance(sizeof(ulong));
    }

    /// <summary>Appends the end of a session.</summary>
    public static void SessionEnd(ByteBuffer payload, UInt128 session)
    {
        payload.Append([(byte)OperationCode.SessionEnd]);
        AppendSession(payload, session);
    }

    /// <summary>Appends the id of a session.</summary>
    public static void AppendSession(ByteBuffer payload, UInt128 session)
    {
        BinaryPrimitives.WriteUInt128BigEndian(payload.Reserve(SessionBytes), session);
        payload.Advance(SessionBytes);
    }
}
