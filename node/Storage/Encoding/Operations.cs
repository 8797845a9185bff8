using System.Buffers.Binary;

namespace KvCluster.Storage.Encoding;

/// <summary>Encodes the operations of a payload (FORMAT.md, "Operations"); <c>OperationReader</c> decodes them.</summary>
internal static class Operations
{
    /// <summary>Bytes of a session's id.</summary>
    public const int SessionBytes = 16;

    /// <summary>
    /// Appends a put, without or with a number that its key ends with: <see cref="OperationCode.Put"/> or <see cref="OperationCode.PutNumbered"/>.
    /// </summary>
    public static void Put(
        ByteBuffer payload, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, in KeyLife life = default, OperationCode code = OperationCode.Put)
    {
        // One reservation for all parts: a load makes millions of puts.
        var place = payload.Reserve(2 + (2 * Varint.BytesMax) + KeyLife.BytesMax + key.Length + value.Length);
        place[0] = (byte)code;
        var count = 1 + Varint.Write(place[1..], (ulong)key.Length);
        key.CopyTo(place[count..]);
        count += key.Length;
        place[count++] = life.Flags;
        count += life.WriteTo(place[count..]);
        count += Varint.Write(place[count..], (ulong)value.Length);
        value.CopyTo(place[count..]);
        payload.Advance(count + value.Length);
    }

    /// <summary>Appends a new expiry of a key. <paramref name="expiryMilliseconds"/>: in shard time since 1970; 0 = never.</summary>
    public static void Touch(ByteBuffer payload, ReadOnlySpan<byte> key, ulong expiryMilliseconds)
    {
        payload.Append([(byte)OperationCode.Touch]);
        payload.AppendWithLength(key);
        payload.AppendNumber(expiryMilliseconds);
    }

    /// <summary>
    /// Appends the end of a key that expires: <see cref="OperationCode.Expire"/>, or <see cref="OperationCode.ForgetExpiry"/> if the key has another etag by
    /// now.
    /// </summary>
    public static void Expire(ByteBuffer payload, OperationCode code, ReadOnlySpan<byte> key, ulong expiryMilliseconds, Etag etag)
    {
        payload.Append([(byte)code]);
        payload.AppendWithLength(key);
        payload.AppendNumber(expiryMilliseconds);
        payload.AppendNumber(etag.Epoch);
        payload.AppendNumber(etag.Change);
    }

    /// <summary>Appends that a session does not own the value with an etag any more.</summary>
    public static void ForgetOwned(ByteBuffer payload, Etag opened, Etag etag)
    {
        payload.Append([(byte)OperationCode.ForgetOwned]);
        payload.AppendNumber(opened.Epoch);
        payload.AppendNumber(opened.Change);
        payload.AppendNumber(etag.Epoch);
        payload.AppendNumber(etag.Change);
    }

    /// <summary>Appends the delete of a key whose session ends in the same record.</summary>
    public static void DeleteOwned(ByteBuffer payload, ReadOnlySpan<byte> key)
    {
        payload.Append([(byte)OperationCode.DeleteOwned]);
        payload.AppendWithLength(key);
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

    /// <summary>Appends the opening of a session. <paramref name="lifetimeMilliseconds"/>: 0 = it has no lifetime, and can own no keys.</summary>
    public static void SessionOpen(ByteBuffer payload, UInt128 session, QuotaOwner owner, ulong lifetimeMilliseconds = 0)
    {
        payload.Append([(byte)OperationCode.SessionOpen]);
        AppendSession(payload, session);
        BinaryPrimitives.WriteUInt64LittleEndian(payload.Reserve(sizeof(ulong)), owner.Value);
        payload.Advance(sizeof(ulong));
        payload.AppendNumber(lifetimeMilliseconds);
    }

    /// <summary>Appends the end of a session.</summary>
    public static void SessionEnd(ByteBuffer payload, UInt128 session)
    {
        payload.Append([(byte)OperationCode.SessionEnd]);
        AppendSession(payload, session);
    }

    /// <summary>
    /// Appends how much of a session's lifetime is left. <paramref name="leftMilliseconds"/>: 0 = what was recorded before does not hold any more.
    /// </summary>
    public static void SessionLeft(ByteBuffer payload, UInt128 session, ulong leftMilliseconds)
    {
        payload.Append([(byte)OperationCode.SessionLeft]);
        AppendSession(payload, session);
        payload.AppendNumber(leftMilliseconds);
    }

    /// <summary>Appends the id of a session.</summary>
    public static void AppendSession(ByteBuffer payload, UInt128 session)
    {
        BinaryPrimitives.WriteUInt128BigEndian(payload.Reserve(SessionBytes), session);
        payload.Advance(SessionBytes);
    }
}
