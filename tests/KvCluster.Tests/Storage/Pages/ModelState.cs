using System.Collections.Immutable;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The content of the trees and the shard time at an etag.</summary>
internal sealed record ModelState(Etag Etag, long ShardTime, ImmutableArray<ImmutableSortedDictionary<byte[], byte[]>> Trees)
{
    public static readonly ModelState Empty =
        new(Etag.None, 0, [.. ModelStore.Trees.Select(_ => ImmutableSortedDictionary.Create<byte[], byte[]>(ByteKeys.Order))]);

    public ImmutableSortedDictionary<byte[], byte[]> this[TreeId tree] => Trees[Array.IndexOf(ModelStore.Trees, tree)];

    /// <summary>Compares every entry, forwards, backwards, and by key.</summary>
    public void CheckAll(ReadSnapshot snapshot)
    {
        Assert.Equal(ShardTime, snapshot.Root.ShardTime);
        foreach (var tree in ModelStore.Trees)
        {
            var entries = this[tree];
            Assert.Equal((ulong)entries.Count, snapshot.Count(tree));
            var cursor = snapshot.Cursor(tree);
            foreach (var (key, value) in entries)
            {
                Assert.True(cursor.MoveNext(), $"{tree} ends before {ByteKeys.Print(key)}.");
                AssertEntry(tree, key, value, cursor.Key, cursor.Value);
                Assert.True(snapshot.TryGet(tree, key, out var found), $"{tree} {ByteKeys.Print(key)} is not found.");
                AssertEntry(tree, key, value, key, found);
            }
            Assert.False(cursor.MoveNext(), $"{tree} continues after its end.");
            var backwards = snapshot.Cursor(tree);
            foreach (var (key, value) in entries.Reverse())
            {
                Assert.True(backwards.MovePrevious(), $"{tree}, backwards, ends before {ByteKeys.Print(key)}.");
                AssertEntry(tree, key, value, backwards.Key, backwards.Value);
            }
            Assert.False(backwards.MovePrevious(), $"{tree} continues before its start.");
        }
    }

    /// <summary>Compares a few keys.</summary>
    public void CheckSome(ReadSnapshot snapshot, Random random)
    {
        Assert.Equal(ShardTime, snapshot.Root.ShardTime);
        foreach (var tree in ModelStore.Trees)
        {
            var entries = this[tree];
            Assert.Equal((ulong)entries.Count, snapshot.Count(tree));
            for (var i = 0; i < 3 && entries.Count > 0; i++)
            {
                var (key, value) = entries.ElementAt(random.Next(entries.Count));
                Assert.True(snapshot.TryGet(tree, key, out var found), $"{tree} {ByteKeys.Print(key)} is not found.");
                AssertEntry(tree, key, value, key, found);
            }
        }
    }

    private static void AssertEntry(TreeId tree, byte[] key, byte[] value, ReadOnlySpan<byte> foundKey, ReadOnlySpan<byte> foundValue)
    {
        Assert.True(foundKey.SequenceEqual(key), $"{tree} has {ByteKeys.Print(foundKey)} where {ByteKeys.Print(key)} should be.");
        Assert.True(foundValue.SequenceEqual(value), $"{tree} {ByteKeys.Print(key)} has a different value of {foundValue.Length} bytes, expected {value.Length}.");
    }
}
