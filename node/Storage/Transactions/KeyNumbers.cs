using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The tree <c>meta</c>: the last number given to a key under each prefix. Numbers are taken on the leader by <see cref="RequestExecution"/> and counted by
/// <see cref="RecordApplier"/>, so every replica knows the next one. Writer executor, or the opening thread.
/// </summary>
internal static class KeyNumbers
{
    /// <summary>The last number given under a prefix; 0 if none was.</summary>
    public static ulong Last(WriteBatch batch, ReadOnlySpan<byte> prefix) => batch.TryGet(TreeId.Meta, prefix, out var stored) ? Read(stored) : 0;

    /// <summary>Counts a numbered key that is put. No number is given again, so a lower one than the last leaves it.</summary>
    /// <exception cref="CorruptStoreException">The key has no number.</exception>
    public static void Count(WriteBatch batch, ReadOnlySpan<byte> key)
    {
        if (!NumberText.TrySplitKey(key, out var prefix, out var number))
            throw new CorruptStoreException("A record numbers a key that does not end with a number.");
        if (number <= Last(batch, prefix))
            return;
        Span<byte> stored = stackalloc byte[sizeof(ulong)];
        BinaryPrimitives.WriteUInt64LittleEndian(stored, number);
        batch.Put(TreeId.Meta, prefix, stored);
    }

    /// <summary>Reads the value of an entry of the tree.</summary>
    /// <exception cref="CorruptStoreException">The value is not a number.</exception>
    public static ulong Read(ReadOnlySpan<byte> stored) => stored.Length == sizeof(ulong)
        ? BinaryPrimitives.ReadUInt64LittleEndian(stored)
        : throw new CorruptStoreException($"The last number under a prefix has {stored.Length} bytes instead of {sizeof(ulong)}.");
}
