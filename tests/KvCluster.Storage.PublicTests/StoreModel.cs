using System.Collections.Immutable;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>
/// A store, and a model of its trees. Batches are written by many callers at once; their etags tell in which order they were applied, and in that order the
/// model has them. One thread at a time.
/// </summary>
internal sealed class StoreModel : IAsyncDisposable
{
    private const int TreesMax = 5;
    private const int SnapshotsMax = 5;

    /// <summary>The least values, so that the store writes checkpoints by itself, too.</summary>
    private static readonly KvStoreOptions Options = new()
    {
        MemoryBudgetBytes = KvStoreOptions.MemoryBudgetBytesMin,
        CheckpointJournalBytes = KvStoreOptions.CheckpointJournalBytesMin,
    };

    private readonly string _folder;
    private readonly Random _random;
    private readonly TreeChecks _checks;
    private readonly Dictionary<string, KvTree> _trees = [];
    private readonly List<(KvSnapshot Snapshot, ImmutableDictionary<KvTree, ModelTree> State)> _snapshots = [];
    private ImmutableDictionary<KvTree, ModelTree> _state = ImmutableDictionary<KvTree, ModelTree>.Empty;
    private KvStore _store;
    private Etag _newest;
    private int _restored;

    public StoreModel(string folder, Random random)
    {
        (_folder, _random) = (folder, random);
        _checks = new TreeChecks(random);
        _store = KvStore.Open(folder, Options);
    }

    /// <summary>Writes batches at once, and makes their changes in the model in the order that their etags tell.</summary>
    public async Task WriteAsync(int count)
    {
        if (_trees.Count == 0)
            await CreateTreeAsync();
        var batches = Enumerable.Range(0, count).Select(_ => NewBatch()).ToList();
        var writes = batches.ConvertAll(batch => _store.WriteAsync(batch.Batch).AsTask());
        var results = await Task.WhenAll(writes);
        // One whose condition does not hold has the etag of the last one that was applied before it.
        foreach (var (result, batch) in results.Zip(batches).OrderBy(one => one.First.Etag).ThenByDescending(one => one.First.IsApplied))
        {
            Assert.Equal(batch.FailsAt(_state), result.FailedCondition);
            Assert.Equal(result.FailedCondition < 0, result.IsApplied);
            if (!result.IsApplied)
                continue;
            Assert.True(result.Etag > _newest, $"{result.Etag} is not greater than {_newest}.");
            (_state, _newest) = (batch.Apply(_state, result.Etag), result.Etag);
        }
    }

    public async Task WriteDuringCheckpointAsync(int count)
    {
        var checkpoint = _store.CheckpointAsync();
        await WriteAsync(count);
        await checkpoint;
    }

    public async Task DeleteRangeAsync()
    {
        if (_trees.Count == 0)
            return;
        var tree = SomeTree();
        var (from, to) = (_checks.SomeBound(), _checks.SomeBound());
        var deleted = _state[tree].Keys.Where(key => ModelTree.IsBetween(key, from, to)).ToList();
        Assert.Equal(deleted.Count, await _store.DeleteRangeAsync(tree, from, to));
        _state = _state.SetItem(tree, _state[tree].Without(deleted));
    }

    /// <summary>Creates a tree, or finds one that is there.</summary>
    public async Task CreateTreeAsync()
    {
        var name = $"tree {_random.Next(TreesMax)}";
        var tree = await _store.CreateTreeAsync(name);
        if (_trees.TryGetValue(name, out var known))
            Assert.Same(known, tree);
        else
            (_trees[name], _state) = (tree, _state.Add(tree, ModelTree.Empty));
    }

    /// <summary>Drops a tree. Snapshots from before still have it.</summary>
    public async Task DropTreeAsync()
    {
        if (_trees.Count == 0)
            return;
        var tree = SomeTree();
        await _store.DropTreeAsync(tree);
        _trees.Remove(tree.Name);
        _state = _state.Remove(tree);
        Assert.False(_store.TryGetTree(tree.Name, out _));
    }

    public void OpenSnapshot()
    {
        if (_snapshots.Count < SnapshotsMax)
            _snapshots.Add((_store.OpenSnapshot(), _state));
    }

    /// <summary>Closes a snapshot, which must have what it had when it was opened.</summary>
    public void CloseSnapshot()
    {
        if (_snapshots.Count == 0)
            return;
        var index = _random.Next(_snapshots.Count);
        var (snapshot, state) = _snapshots[index];
        Check(snapshot, state);
        snapshot.Dispose();
        _snapshots.RemoveAt(index);
    }

    public void CheckNewest()
    {
        using var snapshot = _store.OpenSnapshot();
        Assert.True(snapshot.Etag >= _newest);
        Check(snapshot, _state);
    }

    /// <summary>Closes the store and opens it again. It has the same trees with the same content.</summary>
    public async Task ReopenAsync()
    {
        while (_snapshots.Count > 0)
            CloseSnapshot();
        await _store.DisposeAsync();
        _store = KvStore.Open(_folder, Options);
        Adopt(_store);
        CheckNewest();
    }

    /// <summary>Makes a backup, and restores it beside the store. It has everything that was answered before.</summary>
    public async Task RestoreAsync()
    {
        using var backup = new MemoryStream();
        var etag = await _store.BackupAsync(backup);
        Assert.True(etag >= _newest, $"The backup is of {etag}, and {_newest} was answered before.");
        backup.Position = 0;
        var folder = $"{_folder}-{++_restored}";
        await KvStore.RestoreAsync(backup, folder, Options);
        await using (var restored = KvStore.Open(folder, Options))
        {
            Assert.Equal(_trees.Keys.Order(), restored.TreeNames.Order());
            using var snapshot = restored.OpenSnapshot();
            foreach (var (name, tree) in _trees)
                _checks.CheckAll(snapshot, restored.Tree(name), _state[tree]);
        }
        Directory.Delete(folder, recursive: true);
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var (snapshot, _) in _snapshots)
            snapshot.Dispose();
        await _store.DisposeAsync();
    }

    private void Adopt(KvStore store)
    {
        Assert.Equal(_trees.Keys.Order(), store.TreeNames.Order());
        var state = _trees.ToImmutableDictionary(named => store.Tree(named.Key), named => _state[named.Value]);
        foreach (var tree in state.Keys)
            _trees[tree.Name] = tree;
        _state = state;
    }

    private void Check(KvSnapshot snapshot, ImmutableDictionary<KvTree, ModelTree> state)
    {
        foreach (var (tree, content) in state)
        {
            _checks.CheckAll(snapshot, tree, content);
            _checks.CheckSome(snapshot, tree, content);
        }
    }

    private ModelBatch NewBatch()
    {
        var batch = new ModelBatch();
        for (var count = _random.Next(4) == 0 ? _random.Next(1, 3) : 0; count > 0; count--)
            AddCondition(batch, SomeTree());
        for (var count = _random.Next(1, 13); count > 0; count--)
        {
            var tree = SomeTree();
            switch (_random.Next(8))
            {
                case 0:
                    AddToSet(batch, tree, _checks.SomeSetKey(_state[tree]));
                    break;
                case 1:
                    RemoveFromSet(batch, tree, _checks.SomeSetKey(_state[tree]));
                    break;
                case < 4:
                    batch.Delete(tree, _checks.SomeKey(_state[tree]));
                    break;
                default:
                    batch.Put(tree, _checks.SomeKey(_state[tree]), SomeValue());
                    break;
            }
        }
        return batch;
    }

    /// <summary>A member or two, or as many as make a set large.</summary>
    private void AddToSet(ModelBatch batch, KvTree tree, byte[] key)
    {
        for (var count = _random.Next(8) == 0 ? 300 : _random.Next(1, 3); count > 0; count--)
            batch.SetAdd(tree, key, _checks.NewMember());
    }

    private void RemoveFromSet(ModelBatch batch, KvTree tree, byte[] key)
    {
        var members = _state[tree].FindSet(key).Members;
        if (_random.Next(6) == 0)
            batch.SetDelete(tree, key);
        else
            batch.SetRemove(tree, key, members.IsEmpty ? _checks.NewMember() : members[_random.Next(members.Count)]);
    }

    /// <summary>Most conditions are about what the key has now, and hold if no other batch comes before.</summary>
    private void AddCondition(ModelBatch batch, KvTree tree)
    {
        var key = _checks.SomeKey(_state[tree]);
        var (value, etag) = _state[tree].Find(key) ?? ([], Etag.None);
        switch (_random.Next(6))
        {
            case 0:
                batch.IfExists(tree, key);
                break;
            case 1:
                batch.IfAbsent(tree, key);
                break;
            case < 4:
                batch.IfEtag(tree, key, etag);
                break;
            default:
                batch.IfValue(tree, key, value);
                break;
        }
    }

    private KvTree SomeTree() => _trees.Values.OrderBy(tree => tree.Name, StringComparer.Ordinal).ElementAt(_random.Next(_trees.Count));

    private byte[] SomeValue()
    {
        var value = new byte[_random.Next(40) switch { 0 => _random.Next(200_000), < 5 => _random.Next(9_000), _ => _random.Next(80) }];
        _random.NextBytes(value);
        return value;
    }
}
