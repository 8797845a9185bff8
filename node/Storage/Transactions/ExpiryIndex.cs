using System.Buffers.Binary;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The tree <c>expiry</c> (FORMAT.md, "Entries of the trees"): the keys that expire, in the order of time. An entry stays where a range was deleted, and is
/// stale then: its key has another etag or is gone. Changed by <see cref="KeyLives"/> only. Writer executor, or the opening thread.
/// </summary>
internal static class ExpiryIndex
{
    /// <summary>Entries between two looks at the clock.</summary>
    private const int LookEvery = 16;

    /// <summary>Bytes of an entry's key.</summary>
    public const int KeyBytes = sizeof(ulong) + Etag.ByteLength;

    /// <summary>Adds the entry of a value with this etag, which expires then.</summary>
    public static void Add(WriteBatch batch, ulong expiryMilliseconds, Etag etag, ReadOnlySpan<byte> key)
    {
        Span<byte> entryKey = stackalloc byte[KeyBytes];
        WriteKey(entryKey, expiryMilliseconds, etag);
        batch.Put(TreeId.Expiry, entryKey, key);
    }

    /// <summary>Removes that entry, because the value does not expire then any more, or has expired.</summary>
    public static void Remove(WriteBatch batch, ulong expiryMilliseconds, Etag etag)
    {
        Span<byte> entryKey = stackalloc byte[KeyBytes];
        WriteKey(entryKey, expiryMilliseconds, etag);
        batch.Delete(TreeId.Expiry, entryKey);
    }

    /// <summary>When the first entry expires, in milliseconds of shard time; null if there is none.</summary>
    public static ulong? First(WriteBatch batch)
    {
        if (batch.KeysOf(TreeId.Expiry) == 0)
            return null;
        using var cursor = batch.Cursor(TreeId.Expiry, default, default);
        return cursor.MoveNext() ? ReadKey(cursor.Key).ExpiryMilliseconds : null;
    }

    /// <summary>
    /// Appends the end of what is due to a payload: of each value that has the etag of its entry, and of the entry alone if it is stale. The batch must have
    /// all that was written.
    /// </summary>
    /// <param name="batch">The newest state.</param>
    /// <param name="nowMilliseconds">Shard time. What expires then is due.</param>
    /// <param name="payload">Gets the operations.</param>
    /// <param name="countMax">The most operations.</param>
    /// <param name="bytesMax">Bytes after which no further one follows.</param>
    /// <param name="step">The step of the writer; nothing follows when it has taken enough.</param>
    /// <returns>The number of keys that expire, and when the first of them was due.</returns>
    public static (int Keys, ulong FirstMilliseconds) AppendDue(
        WriteBatch batch, ulong nowMilliseconds, ByteBuffer payload, int countMax, long bytesMax, in StepBound step)
    {
        var (keys, first, count, begin) = (0, 0ul, 0, payload.Count);
        Span<byte> upper = stackalloc byte[KeyBytes];
        WriteKey(upper, nowMilliseconds + 1, Etag.None);
        using var cursor = batch.Cursor(TreeId.Expiry, default, upper);
        while (count < countMax && payload.Count - begin < bytesMax && !step.HasReadEnough && cursor.MoveNext())
        {
            if (count % LookEvery == LookEvery - 1 && step.TookLongEnough)
                break;
            var (expiry, etag) = ReadKey(cursor.Key);
            var isLive = IsLive(batch, cursor.Value, expiry, etag, out _);
            Operations.Expire(payload, isLive ? OperationCode.Expire : OperationCode.ForgetExpiry, cursor.Value, expiry, etag);
            count++;
            if (isLive && keys++ == 0)
                first = expiry;
        }
        return (keys, first);
    }

    /// <summary>Appends that entries are forgotten which are stale, of some from one on.</summary>
    /// <param name="batch">The newest state, which has all that was written.</param>
    /// <param name="from">The first entry; empty: the first one there is.</param>
    /// <param name="payload">Gets the operations.</param>
    /// <param name="countMax">The most entries that are looked at.</param>
    /// <param name="bytesMax">Bytes after which none is looked at.</param>
    /// <param name="step">The step of the writer; none is looked at when it has taken enough.</param>
    /// <returns>Where to go on; empty at the end.</returns>
    public static byte[] AppendStale(WriteBatch batch, ReadOnlySpan<byte> from, ByteBuffer payload, int countMax, long bytesMax, in StepBound step)
    {
        var begin = payload.Count;
        using var cursor = batch.Cursor(TreeId.Expiry, from, default);
        for (var count = 0; cursor.MoveNext(); count++)
        {
            if (count == countMax || payload.Count - begin >= bytesMax || step.HasReadEnough)
                return cursor.Key.ToArray();
            var (expiry, etag) = ReadKey(cursor.Key);
            if (!IsLive(batch, cursor.Value, expiry, etag, out _))
                Operations.Expire(payload, OperationCode.ForgetExpiry, cursor.Value, expiry, etag);
        }
        return [];
    }

    /// <summary>Provides the keys of the first entries that are due, for <see cref="PathPrefetch"/>.</summary>
    public static PageKeysFill KeysDue(ulong nowMilliseconds, int countMax)
    {
        var (next, left) = (Array.Empty<byte>(), countMax);
        return (in ReadSnapshot snapshot, PageKeys keys, int bytesMax) =>
        {
            Span<byte> upper = stackalloc byte[KeyBytes];
            WriteKey(upper, nowMilliseconds + 1, Etag.None);
            using var cursor = snapshot.Cursor(TreeId.Expiry, next, upper);
            for (; left > 0 && keys.Bytes < bytesMax; left--)
            {
                if (!cursor.MoveNext())
                    return false;
                keys.Add(TreeId.Kv, cursor.Value);
                next = [.. cursor.Key, 0];
            }
            return left > 0;
        };
    }

    /// <summary>The parts of an entry's key.</summary>
    public static (ulong ExpiryMilliseconds, Etag Etag) ReadKey(ReadOnlySpan<byte> key) =>
        (BinaryPrimitives.ReadUInt64BigEndian(key), Etag.ReadFrom(key[sizeof(ulong)..]));

    /// <summary>Verifies that an entry of the tree has a key and a value as this class writes them.</summary>
    /// <exception cref="CorruptStoreException">The key or the value is not as this class writes them.</exception>
    public static void Check(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        if (key.Length != KeyBytes || value.Length is 0 or > KvLimits.KeyBytesMax)
            throw new CorruptStoreException($"An entry of the expiries has a key of {key.Length} bytes and {value.Length} bytes.");
    }

    /// <summary>Whether a key still has the etag and the expiry of an entry.</summary>
    public static bool IsLive(WriteBatch batch, ReadOnlySpan<byte> key, ulong expiryMilliseconds, Etag etag, out KeyLife life)
    {
        life = default;
        if (!batch.TryGetBeginning(TreeId.Kv, key, KvValue.HeaderBytesMax, out var stored))
            return false;
        _ = KvValue.Read(stored, out var found, out life);
        return found == etag && life.ExpiryMilliseconds == expiryMilliseconds;
    }

    /// <summary>Writes the key of an entry.</summary>
    public static void WriteKey(Span<byte> entryKey, ulong expiryMilliseconds, Etag etag)
    {
        BinaryPrimitives.WriteUInt64BigEndian(entryKey, expiryMilliseconds);
        etag.WriteTo(entryKey[sizeof(ulong)..]);
    }
}
