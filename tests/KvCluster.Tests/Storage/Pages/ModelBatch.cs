using System.Collections.Immutable;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Makes the same changes in a batch of the store and in the model, and compares each result.</summary>
internal sealed class ModelBatch(WriteBatch batch, ModelState from)
{
    private readonly ImmutableSortedDictionary<byte[], byte[]>.Builder[] _trees =
        [.. ModelStore.Trees.Select(tree => from[tree].ToBuilder())];

    public ImmutableSortedDictionary<byte[], byte[]>.Builder this[TreeId tree] => _trees[Array.IndexOf(ModelStore.Trees, tree)];

    public void Put(TreeId tree, byte[] key, byte[] value)
    {
        // Usually the engine puts a value in two parts, sometimes in one.
        var head = Math.Min(value.Length, 6);
        if (value.Length % 3 == 0)
            batch.Put(tree, key, value);
        else
            batch.Put(tree, key, value.AsSpan(0, head), value.AsSpan(head));
        this[tree][key] = value;
    }

    public void Delete(TreeId tree, byte[] key)
    {
        var existed = this[tree].Remove(key);
        Assert.Equal(existed, batch.Delete(tree, key));
    }

    /// <summary>Deletes the keys from one (empty: the first) up to another (empty: the end).</summary>
    public void DeleteRange(TreeId tree, byte[] from, byte[] to)
    {
        var keys = this[tree].Keys.Where(key => ByteKeys.Order.Compare(key, from) >= 0 && (to.Length == 0 || ByteKeys.Order.Compare(key, to) < 0)).ToArray();
        this[tree].RemoveRange(keys);
        Assert.Equal((ulong)keys.Length, batch.DeleteRange(tree, from, to));
    }

    /// <summary>Deletes a range of any size, between keys that exist or not.</summary>
    public void DeleteSomeRange(TreeId tree, KeyProfile profile, Random random)
    {
        var keys = this[tree].Keys.ToArray();
        byte[] Bound() => random.Next(8) switch
        {
            0 => [],
            < 3 => profile.Key(random),
            _ => keys[random.Next(keys.Length)],
        };
        if (keys.Length == 0)
        {
            DeleteRange(tree, profile.Key(random), []);
            return;
        }
        // Most ranges are short, so that something is left for the next ones.
        var first = random.Next(keys.Length);
        var last = Math.Min(first + (int)Math.Pow(keys.Length, random.NextDouble()), keys.Length - 1);
        if (random.Next(3) == 0)
            DeleteRange(tree, Bound(), Bound());
        else
            DeleteRange(tree, keys[first], keys[last]);
    }

    /// <summary>The shard time of the result.</summary>
    public long ShardTime { get; set; } = from.ShardTime;

    /// <summary>Scratch pages that the batch uses.</summary>
    public int PagesMade => batch.PagesMade;

    public void Get(TreeId tree, byte[] key)
    {
        var found = batch.TryGet(tree, key, out var value);
        Assert.Equal(this[tree].TryGetValue(key, out var expected), found);
        if (found)
            Assert.True(value.SequenceEqual(expected), $"{tree} {ByteKeys.Print(key)} has a different value in the batch.");
    }

    public ModelState Result(Etag etag) => new(etag, ShardTime, [.. _trees.Select(tree => tree.ToImmutable())]);
}
