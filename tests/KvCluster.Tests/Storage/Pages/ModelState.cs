using System.Collections.Immutable;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The content of the trees, the sets and the shard time at an etag.</summary>
internal sealed record ModelState(
    Etag Etag, long ShardTime, ImmutableArray<ImmutableSortedDictionary<byte[], byte[]>> Trees, ImmutableSortedDictionary<byte[], ModelSet> Sets)
{
    public static readonly ModelState Empty = new(
        Etag.None,
        0,
        [.. ModelStore.Trees.Select(_ => ImmutableSortedDictionary.Create<byte[], byte[]>(ByteKeys.Order))],
        ImmutableSortedDictionary.Create<byte[], ModelSet>(ByteKeys.Order));

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
                if (!cursor.MoveNext())
                    Assert.Fail($"{tree} ends before {ByteKeys.Print(key)}.");
                CheckEntry(tree, key, value, cursor.Key, cursor.Value);
                CheckFound(snapshot, tree, key, value);
            }
            Assert.False(cursor.MoveNext(), $"{tree} continues after its end.");
            var backwards = snapshot.Cursor(tree);
            foreach (var (key, value) in entries.Reverse())
            {
                if (!backwards.MovePrevious())
                    Assert.Fail($"{tree}, backwards, ends before {ByteKeys.Print(key)}.");
                CheckEntry(tree, key, value, backwards.Key, backwards.Value);
            }
            Assert.False(backwards.MovePrevious(), $"{tree} continues before its start.");
        }
        CheckCounts(snapshot, new Random(Trees[0].Count), ranges: 8);
        Assert.Equal((ulong)Sets.Count, snapshot.Count(TreeId.Sets));
        using var sets = snapshot.Cursor(TreeId.Sets);
        foreach (var (key, set) in Sets)
        {
            if (!sets.MoveNext() || !sets.Key.SequenceEqual(key))
                Assert.Fail($"The sets end before {ByteKeys.Print(key)}, or others are in between.");
            set.CheckAll(sets.Set, ByteKeys.Print(key));
            Assert.True(snapshot.TryGetSet(key, out var found) && found.Etag == set.Etag && found.Count == (ulong)set.Members.Count);
        }
        Assert.False(sets.MoveNext(), "There are more sets.");
    }

    /// <summary>Compares the numbers of keys in some ranges of each tree.</summary>
    public void CheckCounts(ReadSnapshot snapshot, Random random, int ranges)
    {
        foreach (var tree in ModelStore.Trees)
            CheckCounts(snapshot, tree, [.. this[tree].Keys], random, ranges);
        CheckCounts(snapshot, TreeId.Sets, [.. Sets.Keys], random, ranges);
    }

    private static void CheckCounts(ReadSnapshot snapshot, TreeId tree, byte[][] keys, Random random, int ranges)
    {
        for (; ranges > 0; ranges--)
        {
            byte[] from = Bound(), to = Bound();
            var (first, end) = (PlaceOf(from), to.Length == 0 ? keys.Length : PlaceOf(to));
            var counted = snapshot.CountRange(tree, from, to);
            if (counted != (ulong)Math.Max(0, end - first))
                Assert.Fail($"{tree} has {end - first} keys from {ByteKeys.Print(from)} to {ByteKeys.Print(to)}, and {counted} are counted.");
        }

        // No key, one that exists, or one directly behind it.
        byte[] Bound() =>
            keys.Length == 0 || random.Next(6) == 0 ? [] : random.Next(4) == 0 ? [.. keys[random.Next(keys.Length)], 0] : keys[random.Next(keys.Length)];
        int PlaceOf(byte[] key) => Array.BinarySearch(keys, key, ByteKeys.Order) is var place && place < 0 ? ~place : place;
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
                CheckFound(snapshot, tree, key, value);
            }
        }
        CheckCounts(snapshot, random, ranges: 2);
        Assert.Equal((ulong)Sets.Count, snapshot.Count(TreeId.Sets));
        if (Sets.Count == 0)
            return;
        var (setKey, set) = Sets.ElementAt(random.Next(Sets.Count));
        Assert.True(snapshot.TryGetSet(setKey, out var foundSet), $"The set {ByteKeys.Print(setKey)} is not found.");
        Assert.Equal((set.Etag, (ulong)set.Members.Count), (foundSet.Etag, foundSet.Count));
        set.CheckSome(foundSet, random);
    }

    // What failed is put into words only then: that took longer than the comparisons.
    private static void CheckFound(in ReadSnapshot snapshot, TreeId tree, byte[] key, byte[] value)
    {
        if (!snapshot.TryGet(tree, key, out var found))
            Assert.Fail($"{tree} {ByteKeys.Print(key)} is not found.");
        CheckEntry(tree, key, value, key, found);
    }

    private static void CheckEntry(TreeId tree, byte[] key, byte[] value, ReadOnlySpan<byte> foundKey, ReadOnlySpan<byte> foundValue)
    {
        if (!foundKey.SequenceEqual(key))
            Assert.Fail($"{tree} has {ByteKeys.Print(foundKey)} where {ByteKeys.Print(key)} should be.");
        if (!foundValue.SequenceEqual(value))
            Assert.Fail($"{tree} {ByteKeys.Print(key)} has a different value of {foundValue.Length} bytes, expected {value.Length}.");
    }
}
