using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>What a checkpoint reaches: reads its trees, counts their keys, and keeps a list of what is damaged. One thread.</summary>
internal sealed class PageUse(PageSpace space, string path) : ITreeVisitor
{
    private readonly HashSet<long> _shared = [];
    private readonly PageBitmap _reached = new();
    private TreeId _tree;
    private ulong _keys;
    private LifeCheck? _lives;

    /// <summary>The damage found so far.</summary>
    public List<Finding> Findings { get; } = [];

    /// <summary>The keys that were read, by tree.</summary>
    public Dictionary<TreeId, ulong> Keys { get; } = [];

    /// <summary>Trees of which something cannot be read.</summary>
    public HashSet<TreeId> DamagedTrees { get; } = [];

    /// <summary>Pages that were read.</summary>
    public long PagesRead { get; private set; }

    /// <summary>Reads all trees.</summary>
    public void ReadTrees(TreeRoot[] trees)
    {
        _lives = new LifeCheck(space, trees);
        for (var tree = 0; tree < trees.Length; tree++)
        {
            (_tree, _keys) = ((TreeId)tree, 0);
            var found = Findings.Count;
            new TreeReading(space, this).Read(trees[tree]);
            if (_keys > 0 || trees[tree].Count > 0)
                Keys[_tree] = _keys;
            if (_keys == trees[tree].Count)
                continue;
            DamagedTrees.Add(_tree);
            if (Findings.Count == found)
                Findings.Add(new Finding(
                    IsDamage: true, path, null, $"the tree {TreeText.Of(_tree)} has {_keys} keys, but its root records {trees[tree].Count}",
                    "nothing that can be named"));
        }
    }

    /// <summary>
    /// Compares what was reached with the free map: each page is either in use or not. Without the damaged pages nothing can be said about those that
    /// nobody reaches.
    /// </summary>
    public void Compare(FreeMap free, MetaPage meta)
    {
        Reached(new PageRun(0, 2));
        if (!meta.FreeDirectory.IsNone)
            Reached(new PageRun(meta.FreeDirectory.Number, 1));
        foreach (var place in free.MapPages())
            Reached(new PageRun(place.Reference.Number, 1));
        _reached.Reserve(meta.FilePages);
        var isWhole = Findings.Count == 0;
        var used = new PageBitmap();
        used.Reserve(meta.FilePages);
        foreach (var run in free.UsedRuns())
            used.Add(run);
        for (var page = 0L; page < meta.FilePages; page++)
        {
            var isUsed = used.Has(page);
            if (isUsed == _reached.Has(page) || (isUsed && !isWhole))
                continue;
            Findings.Add(new Finding(
                IsDamage: true, path, page * Page.Bytes,
                $"page {page} is {(isUsed ? "in use by the free map, but nothing reaches it" : "free by the free map, but in use")}",
                isUsed ? "nothing; the page is never used again" : "nothing yet; the next checkpoint may overwrite the page"));
        }
        foreach (var page in _shared.Order())
            Findings.Add(new Finding(
                IsDamage: true, path, page * Page.Bytes, $"page {page} is reached twice", "nothing yet; a change by one way is a change by the other"));
    }

    /// <inheritdoc/>
    public bool Wants(KeyRange keys) => true;

    /// <inheritdoc/>
    public void Reached(PageRun run)
    {
        PagesRead += run.Count;
        _reached.Reserve(run.First + run.Count);
        for (var page = run.First; page < run.First + run.Count; page++)
        {
            if (_reached.Has(page))
                _shared.Add(page);
        }
        _reached.Add(run);
    }

    /// <inheritdoc/>
    public bool Entry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree)
    {
        _keys++;
        if (StoredEntry.WhyUnreadable(_tree, key, value, hasTree) is not { } fault)
        {
            // A wrong life is no damage to the tree of the keys, from which the trees of expiries and owners are made again.
            if (_lives!.WhyWrong(_tree, key, value) is { } wrong)
                LifeIsWrong(wrong, _tree == TreeId.Kv ? key : value);
            return true;
        }
        DamagedTrees.Add(_tree);
        // The ids of sessions are their callers' secrets.
        Findings.Add(Finding.Of(
            fault, path, null, _tree == TreeId.Sessions ? "an entry of the sessions" : $"{TreeText.Of(_tree)}: the value of the key {KeyText.Of(key)}"));
        // The pages of a set's members are in use even if the set's entry is unreadable.
        return true;
    }

    private void LifeIsWrong(string wrong, ReadOnlySpan<byte> key)
    {
        DamagedTrees.Add(_tree == TreeId.Owned ? TreeId.Owned : TreeId.Expiry);
        Findings.Add(new Finding(IsDamage: true, path, null, $"{wrong}: {KeyText.Of(key)}", "nothing; but the key may never expire or end with its session"));
    }

    /// <inheritdoc/>
    public void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
    }

    /// <inheritdoc/>
    public void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys)
    {
        DamagedTrees.Add(_tree);
        Findings.Add(Finding.Of(fault, path, place.Number * Page.Bytes, $"{TreeText.Of(_tree)}: {KeyText.Of(keys)}"));
    }
}
