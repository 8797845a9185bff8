using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// The tree <c>owned</c> (FORMAT.md, "Entries of the trees"): which keys end with which session, named by the etag of its opening. It has an entry per key, by
/// the etag of the key's value, and one per session with what they add up to. An entry stays where a range was deleted, and is stale then: its key has another
/// etag or is gone; the leader has the stale entries of a session forgotten before it refuses it more keys. Changed by <c>RecordApplier</c> only, so that every
/// replica has the same content. Writer executor, or the opening thread.
/// </summary>
internal static class OwnedKeys
{
    /// <summary>Keys that a session may own, stale entries included: as many as a request may change, because the end of the session is one record.</summary>
    public const int KeysMax = KvLimits.KeysMax;

    /// <summary>Bytes that these keys may have together. A record has room for them behind those of its largest request.</summary>
    public const int BytesMax = 2 << 20;

    /// <summary>Bytes of the key of an entry.</summary>
    public const int EntryKeyBytes = 2 * Etag.ByteLength;

    private const int SumBytes = 2 * sizeof(ulong);

    /// <summary>How many entries a session has, and how many bytes their keys have together.</summary>
    public static (ulong Keys, ulong Bytes) SumOf(WriteBatch batch, Etag opened)
    {
        Span<byte> sumKey = stackalloc byte[Etag.ByteLength];
        opened.WriteTo(sumKey);
        return batch.TryGet(TreeId.Owned, sumKey, out var sum)
            ? (BinaryPrimitives.ReadUInt64LittleEndian(sum), BinaryPrimitives.ReadUInt64LittleEndian(sum[sizeof(ulong)..]))
            : default;
    }

    /// <summary>Whether a session may own so many keys more.</summary>
    public static bool HasRoom(WriteBatch batch, Etag opened, ulong keysMore, ulong bytesMore) =>
        SumOf(batch, opened) is var (keys, bytes) && keys + keysMore <= KeysMax && bytes + bytesMore <= BytesMax;

    /// <summary>A value with this etag, whose key the session owns, was put.</summary>
    public static void Add(WriteBatch batch, Etag opened, Etag etag, ReadOnlySpan<byte> key)
    {
        Span<byte> entryKey = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(entryKey, opened, etag);
        batch.Put(TreeId.Owned, entryKey, key);
        Change(batch, opened, 1, key.Length);
    }

    /// <summary>The value with this etag is no longer there, or no longer owned.</summary>
    public static void Remove(WriteBatch batch, Etag opened, Etag etag, int keyBytes)
    {
        Span<byte> entryKey = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(entryKey, opened, etag);
        if (batch.Delete(TreeId.Owned, entryKey))
            Change(batch, opened, -1, -keyBytes);
    }

    /// <summary>The value with this etag is known not to be there any more, nor is its key.</summary>
    public static void Forget(WriteBatch batch, Etag opened, Etag etag)
    {
        Span<byte> entryKey = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(entryKey, opened, etag);
        if (batch.TryGet(TreeId.Owned, entryKey, out var key))
            Remove(batch, opened, etag, key.Length);
    }

    /// <summary>The session has ended: drops its entries, all of them stale by now.</summary>
    public static void End(WriteBatch batch, Etag opened)
    {
        Span<byte> first = stackalloc byte[Etag.ByteLength], next = stackalloc byte[Etag.ByteLength];
        opened.WriteTo(first);
        (opened.Change == ulong.MaxValue ? new Etag(opened.Epoch + 1, 0) : new Etag(opened.Epoch, opened.Change + 1)).WriteTo(next);
        batch.DeleteRange(TreeId.Owned, first, next);
    }

    /// <summary>
    /// Appends a delete of each key that a session owns to a payload, for the record in which the session ends, and returns their number. The batch must have
    /// all that was written.
    /// </summary>
    public static int AppendDeletes(WriteBatch batch, Etag opened, ByteBuffer payload)
    {
        var count = 0;
        using var cursor = EntriesOf(batch, opened);
        while (cursor.MoveNext())
        {
            if (!IsLive(batch, cursor.Value, Etag.ReadFrom(cursor.Key[Etag.ByteLength..])))
                continue;
            Operations.DeleteOwned(payload, cursor.Value);
            count++;
        }
        return count;
    }

    /// <summary>
    /// Appends to a payload that the session does not own what deletes of ranges have removed since. The batch must have all that was written.
    /// </summary>
    public static void AppendStale(WriteBatch batch, Etag opened, ByteBuffer payload)
    {
        using var cursor = EntriesOf(batch, opened);
        while (cursor.MoveNext())
        {
            var etag = Etag.ReadFrom(cursor.Key[Etag.ByteLength..]);
            if (!IsLive(batch, cursor.Value, etag))
                Operations.ForgetOwned(payload, opened, etag);
        }
    }

    /// <summary>Verifies that an entry of the tree has a key and a value as this class writes them.</summary>
    /// <exception cref="CorruptStoreException">The key or the value is not as this class writes them.</exception>
    public static void Check(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        if (key.Length is not (Etag.ByteLength or EntryKeyBytes)
            || (key.Length == Etag.ByteLength ? value.Length != SumBytes : value.Length is 0 or > KvLimits.KeyBytesMax))
            throw new CorruptStoreException($"An entry of the owned keys has a key of {key.Length} bytes and {value.Length} bytes.");
    }

    private static Cursor EntriesOf(WriteBatch batch, Etag opened)
    {
        Span<byte> lower = stackalloc byte[EntryKeyBytes], upper = stackalloc byte[EntryKeyBytes];
        WriteEntryKey(lower, opened, Etag.None);
        WriteEntryKey(upper, opened, Etag.MaxValue);
        return batch.Cursor(TreeId.Owned, lower, upper);
    }

    private static bool IsLive(WriteBatch batch, ReadOnlySpan<byte> key, Etag etag)
    {
        if (!batch.TryGetBeginning(TreeId.Kv, key, KvValue.HeaderBytesMax, out var stored))
            return false;
        _ = KvValue.Read(stored, out var found);
        return found == etag;
    }

    private static void Change(WriteBatch batch, Etag opened, long keys, long bytes)
    {
        Span<byte> sumKey = stackalloc byte[Etag.ByteLength], sum = stackalloc byte[SumBytes];
        opened.WriteTo(sumKey);
        var (keysBefore, bytesBefore) = SumOf(batch, opened);
        if (keysBefore + (ulong)keys == 0)
        {
            batch.Delete(TreeId.Owned, sumKey);
            return;
        }
        BinaryPrimitives.WriteUInt64LittleEndian(sum, keysBefore + (ulong)keys);
        BinaryPrimitives.WriteUInt64LittleEndian(sum[sizeof(ulong)..], bytesBefore + (ulong)bytes);
        batch.Put(TreeId.Owned, sumKey, sum);
    }

    /// <summary>Writes the key of an entry: of a session by the etag of its opening, and a value by its own.</summary>
    public static void WriteEntryKey(Span<byte> entryKey, Etag opened, Etag etag)
    {
        opened.WriteTo(entryKey);
        etag.WriteTo(entryKey[Etag.ByteLength..]);
    }
}
