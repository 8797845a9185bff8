using System.Runtime.InteropServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Puts and deletes of many records that become one state, applied in the order of their keys, and of each key only the last one. In the order of the records
/// each needs another path of the tree, which no cache of the processor has; in the order of the keys those of a leaf follow each other. Only changes of keys
/// without lives: each of those depends on its own key and on nothing else. Filled by <see cref="RecordApplier"/>, which applies them before an operation that
/// may read them; owned by who applies the records. Writer executor, or the opening thread. An exception is one of the batch and stops the engine.
/// </summary>
/// <param name="bytes">About how many bytes of keys and values will be added.</param>
/// <param name="bytesMax">Bytes of memory from which on they should be applied. The more, the more changes a leaf gets at a time.</param>
internal sealed class GatheredChanges(long bytes, int bytesMax = GatheredChanges.BytesMax)
{
    /// <summary>Half a million small changes, so that a store of ten million keys gets some for each leaf.</summary>
    private const int BytesMax = 96 << 20;

    /// <summary>What a change takes beside its key and value: in the list, and for its place in the order.</summary>
    private const int ListedBytes = 48;

    /// <summary>
    /// So many changes before its turn the processor is asked for where one is, and half as many before for its key and value. In the order of the keys the
    /// next one is anywhere in memory.
    /// </summary>
    private const int Ahead = 16;

    private readonly ByteBuffer _bytes = new((int)Math.Min(bytes, bytesMax));
    private readonly List<Change> _changes = [];

    /// <summary>How many bytes all keys begin with in common with the first.</summary>
    private int _common;

    /// <summary>Whether they should be applied before another record is added.</summary>
    public bool IsFull => _bytes.Count + ((long)_changes.Count * ListedBytes) >= bytesMax;

    /// <summary>Adds a put of a key, whose value gets an etag.</summary>
    public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag)
    {
        Add(key, value.Length, etag);
        _bytes.Append(value);
    }

    /// <summary>Adds a delete of a key.</summary>
    public void Delete(ReadOnlySpan<byte> key) => Add(key, Change.Deleted, default);

    /// <summary>Applies what was added, and forgets it.</summary>
    public void ApplyTo(WriteBatch batch)
    {
        Span<byte> header = stackalloc byte[KvValue.HeaderBytesMax];
        scoped var order = InKeyOrder();
        while (!order.IsEmpty)
        {
            if (_changes[order[0]].IsDelete)
            {
                batch.Delete(TreeId.Kv, KeyOf(order[0]));
                order = order[1..];
                continue;
            }
            var puts = new Puts(this, order, header);
            batch.PutAll(TreeId.Kv, ref puts);
            order = puts.Rest;
        }
        _changes.Clear();
        _bytes.Clear(bytesMax * 2);
    }

    private void Add(ReadOnlySpan<byte> key, int valueBytes, Etag etag)
    {
        _common = _changes.Count == 0 ? key.Length : key[..Math.Min(_common, key.Length)].CommonPrefixLength(KeyOf(0));
        _changes.Add(new Change(_bytes.Count, key.Length, valueBytes, etag));
        _bytes.Append(key);
    }

    /// <summary>The last change of each key, in the order of the keys.</summary>
    private ReadOnlySpan<int> InKeyOrder()
    {
        var order = new int[_changes.Count];
        var heads = new ulong[order.Length];
        for (var place = 0; place < order.Length; place++)
            (order[place], heads[place]) = (place, Page.Head(KeyOf(place)[_common..]));
        // Numbers are sorted several times as fast as keys. Only where the bytes behind what all have in common are the same, whole keys are compared.
        Array.Sort(heads, order);
        var count = 0;
        for (int first = 0, end; first < order.Length; first = end)
        {
            for (end = first + 1; end < order.Length && heads[end] == heads[first];)
                end++;
            var same = order.AsSpan(first, end - first);
            if (same.Length > 1)
                same.Sort(CompareKeysAndPlaces);
            for (var at = 0; at < same.Length; at++)
            {
                if (at + 1 == same.Length || !KeyOf(same[at]).SequenceEqual(KeyOf(same[at + 1])))
                    order[count++] = same[at];
            }
        }
        return order.AsSpan(0, count);
    }

    private int CompareKeysAndPlaces(int one, int other) =>
        KeyOf(one).SequenceCompareTo(KeyOf(other)) is not 0 and var difference ? difference : one.CompareTo(other);

    private ReadOnlySpan<byte> KeyOf(int place)
    {
        ref readonly var change = ref CollectionsMarshal.AsSpan(_changes)[place];
        return _bytes.Written.Slice(change.Offset, change.KeyBytes);
    }

    /// <summary>Asks the processor for what the changes behind the first of some need.</summary>
    private void Prefetch(ReadOnlySpan<int> order)
    {
        var changes = CollectionsMarshal.AsSpan(_changes);
        if (order.Length > Ahead)
            Page.PrefetchManaged(ref changes[order[Ahead]]);
        if (order.Length > Ahead / 2)
            Page.PrefetchManaged(ref MemoryMarshal.GetReference(_bytes.Written[changes[order[Ahead / 2]].Offset..]));
    }

    /// <summary>A change, whose key is in the buffer with the value behind it.</summary>
    /// <param name="Offset">Where its key begins.</param>
    /// <param name="KeyBytes">Length of the key.</param>
    /// <param name="ValueBytes">Length of the value, or <see cref="Deleted"/>.</param>
    /// <param name="Etag">That of a put.</param>
    private readonly record struct Change(int Offset, int KeyBytes, int ValueBytes, Etag Etag)
    {
        public const int Deleted = -1;

        public bool IsDelete => ValueBytes == Deleted;
    }

    /// <summary>Puts one after the other, up to a delete.</summary>
    private ref struct Puts : IPutSource
    {
        private readonly GatheredChanges _changes;
        private readonly Span<byte> _header;
        private int _headerBytes;

        /// <param name="changes">Has the changes.</param>
        /// <param name="order">Their places in the order of the keys, the first that of a put.</param>
        /// <param name="header">Memory for <see cref="KvValue.HeaderBytesMax"/> bytes.</param>
        public Puts(GatheredChanges changes, ReadOnlySpan<int> order, Span<byte> header)
        {
            _changes = changes;
            _header = header;
            Rest = order;
            WriteHeader();
        }

        /// <summary>The places from the put at which this is, or from the delete, on.</summary>
        public ReadOnlySpan<int> Rest { get; private set; }

        public static bool Ascends => true;

        public readonly ReadOnlySpan<byte> Key => _changes.KeyOf(Rest[0]);

        public readonly ReadOnlySpan<byte> Header => _header[.._headerBytes];

        public readonly ReadOnlySpan<byte> Body => _changes._bytes.Written.Slice(At.Offset + At.KeyBytes, At.ValueBytes);

        private readonly Change At => _changes._changes[Rest[0]];

        public bool MoveNext()
        {
            Rest = Rest[1..];
            if (Rest.IsEmpty || At.IsDelete)
                return false;
            _changes.Prefetch(Rest);
            WriteHeader();
            return true;
        }

        private void WriteHeader() => _headerBytes = KvValue.WriteHeader(_header, At.Etag, default);
    }
}
