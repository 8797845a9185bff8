using System.Buffers;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Changes of keys that have a life, or may have one: the key in <c>kv</c>, and its entries in <c>expiry</c> and <c>owned</c>, which name it by the etag of its
/// value. Every value with a life has its entries. Deletes of ranges leave them, at no cost per key; they are stale then, and whoever uses them compares the
/// etag. Keys are changed by <see cref="RecordApplier"/> only; a salvage makes their entries again. Writer executor, or the opening thread.
/// </summary>
internal static class KeyLives
{
    /// <summary>Whether any key of a state may have a life. If not, puts and deletes need not look at what they replace.</summary>
    public static bool Any(WriteBatch batch) => batch.KeysOf(TreeId.Expiry) + batch.KeysOf(TreeId.Owned) > 0;

    /// <summary>Sets a key's value.</summary>
    public static void Put(WriteBatch batch, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag, in KeyLife life)
    {
        Forget(batch, key);
        Span<byte> header = stackalloc byte[KvValue.HeaderBytesMax];
        batch.Put(TreeId.Kv, key, header[..KvValue.WriteHeader(header, etag, life)], value);
        AddEntries(batch, key, etag, life);
    }

    /// <summary>Removes a key; returns whether it existed.</summary>
    public static bool Delete(WriteBatch batch, ReadOnlySpan<byte> key)
    {
        Forget(batch, key);
        return batch.Delete(TreeId.Kv, key);
    }

    /// <summary>Sets when a key expires; 0 = never. It keeps its value and its etag. Returns whether it exists.</summary>
    public static bool Touch(WriteBatch batch, ReadOnlySpan<byte> key, ulong expiryMilliseconds)
    {
        if (!batch.TryGet(TreeId.Kv, key, out var stored))
            return false;
        var value = KvValue.Read(stored, out var etag, out var life);
        if (life.ExpiryMilliseconds == expiryMilliseconds)
            return true;
        // The value is in the page that is changed.
        var copy = ArrayPool<byte>.Shared.Rent(value.Length);
        value.CopyTo(copy);
        Span<byte> header = stackalloc byte[KvValue.HeaderBytesMax];
        batch.Put(
            TreeId.Kv, key, header[..KvValue.WriteHeader(header, etag, life with { ExpiryMilliseconds = expiryMilliseconds })], copy.AsSpan(0, value.Length));
        ArrayPool<byte>.Shared.Return(copy);
        if (life.ExpiryMilliseconds != 0)
            ExpiryIndex.Remove(batch, life.ExpiryMilliseconds, etag);
        if (expiryMilliseconds != 0)
            ExpiryIndex.Add(batch, expiryMilliseconds, etag, key);
        return true;
    }

    /// <summary>Removes an expiry, and with it the key, if it still has that etag and expires then. Returns whether the key went.</summary>
    public static bool Expire(WriteBatch batch, ReadOnlySpan<byte> key, ulong expiryMilliseconds, Etag etag)
    {
        ExpiryIndex.Remove(batch, expiryMilliseconds, etag);
        if (!ExpiryIndex.IsLive(batch, key, expiryMilliseconds, etag, out var life))
            return false;
        if (life.Owner != Etag.None)
            OwnedKeys.Remove(batch, life.Owner, etag, key.Length);
        return batch.Delete(TreeId.Kv, key);
    }

    /// <summary>Makes the entries of a stored key again, in a state without them.</summary>
    public static void Find(WriteBatch batch, ReadOnlySpan<byte> key, ReadOnlySpan<byte> stored)
    {
        _ = KvValue.Read(stored, out var etag, out var life);
        AddEntries(batch, key, etag, life);
    }

    private static void AddEntries(WriteBatch batch, ReadOnlySpan<byte> key, Etag etag, in KeyLife life)
    {
        if (life.ExpiryMilliseconds != 0)
            ExpiryIndex.Add(batch, life.ExpiryMilliseconds, etag, key);
        if (life.Owner != Etag.None)
            OwnedKeys.Add(batch, life.Owner, etag, key);
    }

    /// <summary>Removes the entries of a key whose value will be replaced.</summary>
    private static void Forget(WriteBatch batch, ReadOnlySpan<byte> key)
    {
        if (!batch.TryGetBeginning(TreeId.Kv, key, KvValue.HeaderBytesMax, out var stored))
            return;
        _ = KvValue.Read(stored, out var etag, out var life);
        if (life.ExpiryMilliseconds != 0)
            ExpiryIndex.Remove(batch, life.ExpiryMilliseconds, etag);
        if (life.Owner != Etag.None)
            OwnedKeys.Remove(batch, life.Owner, etag, key.Length);
    }
}
