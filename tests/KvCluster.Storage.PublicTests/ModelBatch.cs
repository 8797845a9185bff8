using System.Collections.Immutable;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>A batch, and what it does to a model.</summary>
internal sealed class ModelBatch
{
    private readonly List<(KvTree Tree, Func<ModelTree, bool> Holds)> _conditions = [];
    private readonly List<(KvTree Tree, Func<ModelTree, Etag, ModelTree> Change)> _operations = [];

    public KvBatch Batch { get; } = new();

    public void Put(KvTree tree, byte[] key, byte[] value)
    {
        Batch.Put(tree, key, value);
        _operations.Add((tree, (content, etag) => content.With(key, value, etag)));
    }

    public void Delete(KvTree tree, byte[] key)
    {
        Batch.Delete(tree, key);
        _operations.Add((tree, (content, _) => content.Without(key)));
    }

    public void SetAdd(KvTree tree, byte[] key, byte[] member)
    {
        Batch.SetAdd(tree, key, member);
        _operations.Add((tree, (content, etag) => content.WithSet(key, members => members.Add(member), etag)));
    }

    public void SetRemove(KvTree tree, byte[] key, byte[] member)
    {
        Batch.SetRemove(tree, key, member);
        _operations.Add((tree, (content, etag) => content.WithSet(key, members => members.Remove(member), etag)));
    }

    public void SetDelete(KvTree tree, byte[] key)
    {
        Batch.SetDelete(tree, key);
        _operations.Add((tree, (content, etag) => content.WithSet(key, members => members.Clear(), etag)));
    }

    public void IfExists(KvTree tree, byte[] key)
    {
        Batch.IfExists(tree, key);
        _conditions.Add((tree, content => content.Find(key) is not null));
    }

    public void IfAbsent(KvTree tree, byte[] key)
    {
        Batch.IfAbsent(tree, key);
        _conditions.Add((tree, content => content.Find(key) is null));
    }

    public void IfEtag(KvTree tree, byte[] key, Etag etag)
    {
        Batch.IfEtag(tree, key, etag);
        _conditions.Add((tree, content => (content.Find(key)?.Etag ?? Etag.None) == etag));
    }

    public void IfValue(KvTree tree, byte[] key, byte[] value)
    {
        Batch.IfValue(tree, key, value);
        _conditions.Add((tree, content => content.Find(key) is { } known && known.Value.AsSpan().SequenceEqual(value)));
    }

    /// <summary>The first condition that does not hold in a state; -1 if all do.</summary>
    public int FailsAt(ImmutableDictionary<KvTree, ModelTree> state) => _conditions.FindIndex(condition => !condition.Holds(state[condition.Tree]));

    /// <summary>The state after it. Its operations have consecutive etags up to the last one.</summary>
    public ImmutableDictionary<KvTree, ModelTree> Apply(ImmutableDictionary<KvTree, ModelTree> state, Etag last)
    {
        var etag = last with { Change = last.Change - (ulong)_operations.Count };
        foreach (var (tree, change) in _operations)
        {
            etag++;
            state = state.SetItem(tree, change(state[tree], etag));
        }
        return state;
    }
}
