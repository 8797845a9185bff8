using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Whether the engine can decode an entry of a tree. Its page may be intact and the entry wrong all the same, after a bug or a fault of the memory. Pure.
/// </summary>
internal static class StoredEntry
{
    /// <summary>Why it cannot be decoded; null if it can.</summary>
    public static CorruptStoreException? WhyUnreadable(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree)
    {
        if (hasTree && tree != TreeId.Sets)
            return new CorruptStoreException("An entry has a tree of its own, which only those of sets have.");
        try
        {
            switch (tree)
            {
                case TreeId.Kv:
                    _ = KvValue.Read(value, out _);
                    break;
                case TreeId.Expiry:
                    ExpiryIndex.Check(key, value);
                    break;
                case TreeId.Owned:
                    OwnedKeys.Check(key, value);
                    break;
                case TreeId.Sets:
                    new SetValue(value).Check(hasTree);
                    break;
                case TreeId.Sessions:
                    SessionTable.Check(key, value);
                    break;
                case TreeId.Meta:
                    _ = KeyNumbers.Read(value);
                    break;
            }
            return null;
        }
        catch (CorruptStoreException fault)
        {
            return fault;
        }
    }
}
