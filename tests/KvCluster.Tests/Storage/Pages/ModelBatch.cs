using System.Collections.Immutable;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Makes the same changes in a batch of the store and in the model, and compares each result.</summary>
internal sealed class ModelBatch(WriteBatch batch, ModelState from)
{
    private readonly ImmutableSortedDictionary<byte[], byte[]>.Builder[] _trees =
        [.. ModelStore.Trees.Select(tree => from[tree].ToBuilder())];
    private readonly ImmutableSortedDictionary<byte[], ModelSet>.Builder _sets = from.Sets.ToBuilder();
    private ulong _setChanges;

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

    /// <summary>Puts entries one after the other, as a record does.</summary>
    public void PutAll(TreeId tree, IReadOnlyList<(byte[] Key, byte[] Value)> entries)
    {
        var puts = new PutList(entries);
        batch.PutAll(tree, ref puts);
        Assert.Equal(entries.Count, puts.Taken);
        foreach (var (key, value) in entries)
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
        var keys = this[tree].Keys.Where(key => ByteKeys.IsBetween(key, from, to)).ToArray();
        this[tree].RemoveRange(keys);
        Assert.Equal((ulong)keys.Length, batch.DeleteRange(tree, from, to));
    }

    /// <summary>Counts a range of any size.</summary>
    public void CountSomeRange(TreeId tree, KeyProfile profile, Random random)
    {
        byte[] from = SomeBound(tree, profile, random), to = SomeBound(tree, profile, random);
        Assert.Equal((ulong)this[tree].Keys.Count(key => ByteKeys.IsBetween(key, from, to)), batch.CountRange(tree, from, to));
        from = SomeSet();
        to = SomeSet();
        Assert.Equal((ulong)_sets.Keys.Count(key => ByteKeys.IsBetween(key, from, to)), batch.CountRange(TreeId.Sets, from, to));

        byte[] SomeSet() => random.Next(3) == 0 ? [] : [(byte)random.Next(6)];
    }

    private byte[] SomeBound(TreeId tree, KeyProfile profile, Random random) => random.Next(8) switch
    {
        0 => [],
        < 3 => profile.Key(random),
        _ when this[tree].Count == 0 => profile.Key(random),
        _ => this[tree].Keys.ElementAt(random.Next(this[tree].Count)),
    };

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

    public ImmutableSortedDictionary<byte[], ModelSet>.Builder Sets => _sets;

    public bool IsPromoted(byte[] key) => batch.TryGetSet(key, out var set) && set.IsPromoted;

    public void AddMember(byte[] key, byte[] member)
    {
        var set = _sets.GetValueOrDefault(key, ModelSet.Empty);
        var etag = NextSetEtag();
        var isNew = !set.Members.Contains(member);
        if (isNew)
            _sets[key] = new ModelSet(etag, set.Members.Add(member));
        Assert.Equal(isNew, batch.SetAdd(key, member, etag));
    }

    public void RemoveMember(byte[] key, byte[] member)
    {
        var set = _sets.GetValueOrDefault(key, ModelSet.Empty);
        var etag = NextSetEtag();
        var isThere = set.Members.Contains(member);
        if (isThere && set.Members.Count == 1)
            _sets.Remove(key);
        else if (isThere)
            _sets[key] = new ModelSet(etag, set.Members.Remove(member));
        Assert.Equal(isThere, batch.SetRemove(key, member, etag));
    }

    /// <summary>Removes a set with all its members.</summary>
    public void DeleteSet(byte[] key) => DeleteMembers(key, []);

    /// <summary>Removes the members of a set before one (empty: all).</summary>
    public void DeleteMembers(byte[] key, byte[] end)
    {
        var set = _sets.GetValueOrDefault(key, ModelSet.Empty);
        var etag = NextSetEtag();
        var left = set.Members.Except(set.Members.Where(member => ByteKeys.IsBetween(member, [], end)));
        if (left.IsEmpty)
            _sets.Remove(key);
        else if (left.Count < set.Members.Count)
            _sets[key] = new ModelSet(etag, left);
        Assert.Equal((ulong)(set.Members.Count - left.Count), batch.SetDelete(key, end, etag));
    }

    /// <summary>Removes sets from one key (empty: the first) up to another (empty: the end).</summary>
    public void DeleteSets(byte[] from, byte[] to)
    {
        var keys = _sets.Keys.Where(key => ByteKeys.IsBetween(key, from, to)).ToArray();
        _sets.RemoveRange(keys);
        Assert.Equal((ulong)keys.Length, batch.DeleteRange(TreeId.Sets, from, to));
    }

    /// <summary>Changes one of a few sets, mostly by some members, sometimes as a whole.</summary>
    public void ChangeSomeSet(KeyProfile profile, Random random)
    {
        byte[] key = random.Next(12) == 0 ? profile.Key(random) : [(byte)random.Next(6), 0];
        var set = _sets.GetValueOrDefault(key, ModelSet.Empty);
        switch (random.Next(24))
        {
            case 0:
                DeleteSet(key);
                break;
            case 1:
                DeleteSets([(byte)random.Next(6)], random.Next(6) == 0 ? [] : [(byte)random.Next(6)]);
                break;
            case 2:
                DeleteMembers(key, set.Members.Count > 0 && random.Next(4) > 0 ? set.Members[random.Next(set.Members.Count)] : profile.Key(random));
                break;
            case < 5:
                foreach (var member in set.Members.Where(_ => random.Next(5) > 0).ToArray())
                    RemoveMember(key, member);
                break;
            case < 9:
                var added = Enumerable.Range(0, random.Next(1, 150)).Select(_ => profile.Key(random)).ToArray();
                if (random.Next(2) == 0)
                    Array.Sort(added, ByteKeys.Order);
                Array.ForEach(added, member => AddMember(key, member));
                break;
            case < 13:
                RemoveMember(key, set.Members.Count > 0 && random.Next(4) > 0 ? set.Members[random.Next(set.Members.Count)] : profile.Key(random));
                break;
            default:
                AddMember(key, set.Members.Count > 0 && random.Next(4) == 0 ? set.Members[random.Next(set.Members.Count)] : profile.Key(random));
                break;
        }
        if (random.Next(4) > 0)
            return;
        Assert.Equal(_sets.TryGetValue(key, out var expected), batch.TryGetSet(key, out var stored));
        expected?.CheckAll(stored, ByteKeys.Print(key));
    }

    /// <summary>Scratch pages that the batch uses.</summary>
    public int PagesMade => batch.PagesMade;

    public void Get(TreeId tree, byte[] key)
    {
        var found = batch.TryGet(tree, key, out var value);
        Assert.Equal(this[tree].TryGetValue(key, out var expected), found);
        if (found && !value.SequenceEqual(expected))
            Assert.Fail($"{tree} {ByteKeys.Print(key)} has a different value in the batch.");
    }

    public ModelState Result(Etag etag) => new(etag, ShardTime, [.. _trees.Select(tree => tree.ToImmutable())], _sets.ToImmutable());

    private Etag NextSetEtag() => new(from.Etag.Epoch + 1, (from.Etag.Change * 100_000) + ++_setChanges);
}
