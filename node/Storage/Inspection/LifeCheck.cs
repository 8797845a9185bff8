using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Compares the lives of keys with the trees that find them by expiry and by owner. A value without its entry would never end. An entry whose key is gone or
/// has another etag is stale, which is sound. One thread that has the file to itself.
/// </summary>
internal sealed unsafe class LifeCheck(PageSpace space, TreeRoot[] trees)
{
    /// <summary>What is wrong with a sound entry of one of these trees; null if nothing is, or a damaged page hides it, which is reported for itself.</summary>
    public string? WhyWrong(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        try
        {
            return tree switch
            {
                TreeId.Kv => OfKey(key, value),
                TreeId.Expiry => OfExpiry(key, value),
                TreeId.Owned when key.Length > Etag.ByteLength => OfOwned(key, value),
                _ => null,
            };
        }
        catch (CorruptStoreException)
        {
            return null;
        }
    }

    private string? OfKey(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        _ = KvValue.Read(value, out var etag, out var life);
        if (life.IsUnlimited)
            return null;
        Span<byte> expiry = stackalloc byte[ExpiryIndex.KeyBytes], entry = stackalloc byte[OwnedKeys.EntryKeyBytes];
        ExpiryIndex.WriteKey(expiry, life.ExpiryMilliseconds, etag);
        if (life.ExpiryMilliseconds != 0 && (!TryGet(TreeId.Expiry, expiry, out var found) || !found.SequenceEqual(key)))
            return "a key that expires is not in the tree expiry";
        OwnedKeys.WriteEntryKey(entry, life.Owner, etag);
        return life.Owner == Etag.None || (TryGet(TreeId.Owned, entry, out var owned) && owned.SequenceEqual(key)) ? null
            : "a key that a session owns is not in the tree owned";
    }

    private string? OfExpiry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        var (expiry, etag) = ExpiryIndex.ReadKey(key);
        return IsStale(value, etag, out var life) || life.ExpiryMilliseconds == expiry ? null : "a key is in the tree expiry with another expiry than its own";
    }

    private string? OfOwned(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        IsStale(value, Etag.ReadFrom(key[Etag.ByteLength..]), out var life) || life.Owner == Etag.ReadFrom(key) ? null
            : "a key is in the tree owned with another owner than its own";

    private bool IsStale(ReadOnlySpan<byte> key, Etag etag, out KeyLife life)
    {
        life = default;
        if (!TryGet(TreeId.Kv, key, out var stored))
            return true;
        _ = KvValue.Read(stored, out var found, out life);
        return found != etag;
    }

    private bool TryGet(TreeId tree, scoped ReadOnlySpan<byte> key, out ReadOnlySpan<byte> value)
    {
        fixed (TreeRoot* root = &trees[(int)tree])
            return Lookup.TryGet(space, root, key, out value);
    }
}
