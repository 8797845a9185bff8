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

    public void Get(TreeId tree, byte[] key)
    {
        var found = batch.TryGet(tree, key, out var value);
        Assert.Equal(this[tree].TryGetValue(key, out var expected), found);
        if (found)
            Assert.True(value.SequenceEqual(expected), $"{tree} {ByteKeys.Print(key)} has a different value in the batch.");
    }

    public ModelState Result(Etag etag) => new(etag, [.. _trees.Select(tree => tree.ToImmutable())]);
}
