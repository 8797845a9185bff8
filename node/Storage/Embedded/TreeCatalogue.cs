using System.Buffers.Binary;
using System.Collections.Immutable;
using System.Text;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// The names of a store's trees and their numbers, kept in the store itself under the number 0 (FORMAT.md, "Embedded store"). All trees share one tree of the
/// engine for their values and one for their sets, and the number before each key keeps them apart. Any thread; changes are made one at a time.
/// </summary>
/// <remarks>
/// A tree is dropped with one write that removes its name. Its keys and sets are removed afterwards. A number is never used again, so keys whose number has no
/// name belong to nobody, and the next open removes them. A crash may leave some. A batch that races with the drop of one of its trees is applied before it, or
/// refused.
/// </remarks>
internal sealed class TreeCatalogue
{
    private const uint CatalogueNumber = 0;

    /// <summary>Small sets of a dropped tree that are removed together: one record of some kilobytes, or at most two megabytes with the longest keys.</summary>
    private const int SetsAtOnce = 1_000;

    private static readonly UTF8Encoding StrictUtf8 = new(encoderShouldEmitUTF8Identifier: false, throwOnInvalidBytes: true);

    private readonly KvStore _store;
    private readonly Turns _turns = new();
    private volatile ImmutableDictionary<string, KvTree> _trees = ImmutableDictionary.Create<string, KvTree>(StringComparer.Ordinal);
    private uint _numberNext = CatalogueNumber + 1;

    /// <summary>Has no trees before <see cref="LoadAsync"/>.</summary>
    public TreeCatalogue(KvStore store) => _store = store;

    /// <summary>The trees by name.</summary>
    public ImmutableDictionary<string, KvTree> Trees => _trees;

    /// <summary>Reads the names, and removes keys that belong to no tree. Called once, before any other use.</summary>
    public async Task LoadAsync()
    {
        foreach (var number in Load())
            await RemoveKeysAsync(number, CancellationToken.None).ConfigureAwait(false);
    }

    /// <summary>The tree with a name, which is created if there is none.</summary>
    /// <exception cref="ArgumentException">The name is empty, too long or not valid Unicode.</exception>
    /// <exception cref="KvStoreException">There are too many trees.</exception>
    public async Task<KvTree> CreateAsync(string name, CancellationToken cancellationToken)
    {
        var encoded = Encode(name);
        if (_trees.TryGetValue(name, out var existing))
            return existing;
        using var turn = await _turns.TakeAsync(cancellationToken).ConfigureAwait(false);
        if (_trees.TryGetValue(name, out existing))
            return existing;
        if (_trees.Count >= KvStoreLimits.TreesMax)
            throw new KvStoreException($"The tree '{name}' was not created, because the store has {_trees.Count} trees, which is the most. Drop one first.");
        if (_numberNext == uint.MaxValue)
            throw new KvStoreException($"The tree '{name}' was not created, because all numbers of trees have been used. Copy the trees into a new store.");
        var request = WriteRequest.Rent();
        Put(request, encoded, _numberNext);
        Put(request, [], _numberNext + 1);
        await _store.SubmitAsync(request, cancellationToken).ConfigureAwait(false);
        var tree = new KvTree(_store, name, _numberNext++);
        _trees = _trees.Add(name, tree);
        return tree;
    }

    /// <summary>Removes a tree with all its keys.</summary>
    /// <exception cref="KvTreeNotFoundException">The tree was dropped before.</exception>
    public async Task DropAsync(KvTree tree, CancellationToken cancellationToken)
    {
        using var turn = await _turns.TakeAsync(cancellationToken).ConfigureAwait(false);
        tree.ThrowIfDropped();
        tree.BeginDrop();
        try
        {
            var request = WriteRequest.Rent();
            request.Delete(TreeKey.Bound(CatalogueNumber, Encode(tree.Name)));
            await _store.SubmitAsync(request, cancellationToken).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is not KvStoreFailedException { IsOutcomeUnknown: true })
        {
            tree.CancelDrop();
            throw;
        }
        _trees = _trees.Remove(tree.Name);
        await RemoveKeysAsync(tree.Number, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Waits for the change under way. None begins afterwards.</summary>
    public Task EndAsync() => _turns.EndAsync();

    private static byte[] Encode(string name)
    {
        ArgumentException.ThrowIfNullOrEmpty(name);
        var encoded = StrictUtf8.GetBytes(name);
        return encoded.Length <= KvStoreLimits.TreeNameBytesMax
            ? encoded
            : throw new ArgumentOutOfRangeException(
                nameof(name), encoded.Length, $"The name of a tree has at most {KvStoreLimits.TreeNameBytesMax} bytes of UTF-8. No tree was created.");
    }

    private static void Put(WriteRequest request, ReadOnlySpan<byte> name, uint number)
    {
        Span<byte> value = stackalloc byte[sizeof(uint)];
        BinaryPrimitives.WriteUInt32BigEndian(value, number);
        request.Put(TreeKey.Bound(CatalogueNumber, name), value);
    }

    /// <summary>Reads the names and returns the numbers that have keys but no name.</summary>
    private List<uint> Load()
    {
        using var snapshot = _store.OpenEngineSnapshot();
        var trees = _trees.ToBuilder();
        Span<byte> lower = stackalloc byte[TreeKey.NumberBytes], upper = stackalloc byte[TreeKey.NumberBytes];
        using (var names = snapshot.Cursor(TreeId.Kv, TreeKey.Write(lower, CatalogueNumber, default), TreeKey.WriteEnd(upper, CatalogueNumber, default)))
        {
            while (names.MoveNext())
            {
                var value = KvValue.Read(names.Value, out _);
                if (value.Length != sizeof(uint))
                    throw new CorruptStoreException($"The catalogue of trees has an entry of {value.Length} bytes.");
                var number = BinaryPrimitives.ReadUInt32BigEndian(value);
                var name = StrictUtf8.GetString(names.Key[TreeKey.NumberBytes..]);
                if (name.Length == 0)
                    _numberNext = number;
                else
                    trees.Add(name, new KvTree(_store, name, number));
            }
        }
        _trees = trees.ToImmutable();
        var named = new HashSet<uint>(_trees.Values.Select(tree => tree.Number));
        return [.. FindOrphans(snapshot, TreeId.Kv, named).Union(FindOrphans(snapshot, TreeId.Sets, named))];
    }

    /// <summary>Looks at the first key of each number only.</summary>
    private static List<uint> FindOrphans(in ReadSnapshot snapshot, TreeId tree, HashSet<uint> named)
    {
        var found = new List<uint>();
        Span<byte> next = stackalloc byte[TreeKey.BytesMax];
        using var keys = snapshot.Cursor(tree);
        for (var more = keys.Seek(TreeKey.WriteEnd(next, CatalogueNumber, default)); more;)
        {
            var number = TreeKey.TreeOf(keys.Key);
            if (!named.Contains(number))
                found.Add(number);
            more = keys.Seek(TreeKey.WriteEnd(next, number, default));
        }
        return found;
    }

    private async Task RemoveKeysAsync(uint number, CancellationToken cancellationToken)
    {
        var (from, to) = (TreeKey.Bound(number, default), TreeKey.EndBound(number, default));
        await _store.DeleteRangeAsync(from, to, cancellationToken).ConfigureAwait(false);
        while (FirstSets(from, to) is { Count: > 0 } sets)
            await _store.DeleteSetsAsync(sets, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>
    /// The first stored keys with small sets, or one with a large set: what one request deletes. Of a tree whose sets nobody changes any more.
    /// </summary>
    private List<byte[]> FirstSets(byte[] from, byte[] to)
    {
        var found = new List<byte[]>();
        try
        {
            using var snapshot = _store.OpenEngineSnapshot();
            using var sets = snapshot.Cursor(TreeId.Sets, from, to);
            for (var isSmall = true; isSmall && found.Count < SetsAtOnce && sets.MoveNext();)
            {
                isSmall = !sets.Set.IsPromoted;
                if (isSmall || found.Count == 0)
                    found.Add(sets.Key.ToArray());
            }
        }
        catch (Exception failure) when (StoreErrors.TryTranslate(failure, out var translated))
        {
            throw translated;
        }
        return found;
    }
}
