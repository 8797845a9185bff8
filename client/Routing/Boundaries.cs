using System.Buffers.Binary;
using System.Numerics;
using System.Runtime.Intrinsics;

namespace KvCluster.Client.Routing;

/// <summary>
/// Sorted keys, immutable, laid out to count how many of them are not greater than a given key. They form a tree. All keys below a node share a prefix, and
/// the node has the distinct heads of its keys, that is, their first 8 bytes after that prefix. Keys with the same head are in a child, whose prefix is
/// longer. Nodes, with the bytes by which their prefixes are longer than their parents', stand in one array, children near their parents. So a search reads
/// few cache lines, and no whole key unless it differs from the searched one only after the last head. Any thread; a search takes no lock and allocates
/// nothing.
/// </summary>
/// <remarks>
/// A node is a word with its numbers of keys and heads (24 bits each) and the length of its own part of the prefix (16 bits), then that part, up to 8 bytes
/// to a number, then the heads in ascending order, padded with zeros where a key ends. If there are fewer heads than keys, an entry per head follows: the index
/// of its first key (32 bits) and the position of the child (32 bits), 0 if there is none.
/// </remarks>
internal sealed class Boundaries
{
    private const int HeadBytes = sizeof(ulong);
    private const int CountBits = 24;
    private const int CountMax = (1 << CountBits) - 1;
    private const int PrefixBytesMax = ushort.MaxValue;
    // Heads that one comparison of vectors covers. Short runs are counted by it, because a wrongly predicted branch takes longer.
    private const int RunHeads = 512 / 64;
    private readonly byte[] _bytes;
    private readonly int[] _offsets;
    private readonly ulong[] _words;

    /// <param name="keys">In ascending order; duplicates are allowed.</param>
    public Boundaries(IReadOnlyList<ReadOnlyMemory<byte>> keys)
    {
        Invariant.Check(keys.Count <= CountMax, $"a shard map has {keys.Count} boundaries, more than {CountMax}");
        _offsets = new int[keys.Count + 1];
        for (var index = 0; index < keys.Count; index++)
            _offsets[index + 1] = checked(_offsets[index] + keys[index].Length);
        _bytes = new byte[_offsets[^1]];
        for (var index = 0; index < keys.Count; index++)
            keys[index].Span.CopyTo(_bytes.AsSpan(_offsets[index]));
        _words = Nodes();
    }

    public int Count => _offsets.Length - 1;

    /// <summary>The key at an index.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.AsSpan(_offsets[index], _offsets[index + 1] - _offsets[index]);

    /// <summary>The number of keys that are less than or equal to this one.</summary>
    public int CountNotAfter(ReadOnlySpan<byte> key)
    {
        ReadOnlySpan<ulong> words = _words;
        // The node at this position has the keys from this index. All of them have the searched key's bytes up to this depth, where a key that ends earlier
        // counts as padded with zeros.
        var (position, first, depth) = (0, 0, 0);
        while (true)
        {
            var (keys, heads, prefixBytes) = Shape(words[position++]);
            for (; prefixBytes > 0; prefixBytes -= HeadBytes)
            {
                var bytes = Math.Min(prefixBytes, HeadBytes);
                var (own, theirs) = (Head(key, depth) >> (8 * (HeadBytes - bytes)), words[position++]);
                if (own != theirs)
                    return own < theirs ? first : first + keys;
                depth += bytes;
            }
            // Not a byte of the key is left, and only padding was equal: the key is a beginning of all these keys.
            if (key.Length < depth)
                return first;
            var head = Head(key, depth);
            var place = position + CountLess(words[position..], heads, head);
            var isSame = place < position + heads && words[place] == head;
            if (heads == keys)
            {
                var index = first + place - position;
                return isSame && IsNotAfter(index, key, depth + HeadBytes) ? index + 1 : index;
            }
            if (place == position + heads)
                return first + keys;
            var entry = words[place + heads];
            if (!isSame)
                return (int)(uint)entry;
            var child = (int)(entry >> 32);
            if (child == 0)
            {
                var end = place + 1 < position + heads ? (int)(uint)words[place + heads + 1] : first + keys;
                return CountWhole((int)(uint)entry, end, key);
            }
            (position, first, depth) = (child, (int)(uint)entry, depth + HeadBytes);
        }
    }

    private static (int Keys, int Heads, int PrefixBytes) Shape(ulong word) =>
        ((int)(word & CountMax), (int)(word >> CountBits) & CountMax, (int)(word >> (2 * CountBits)));

    // The 8 bytes of a key from a depth on, padded with zeros.
    private static ulong Head(ReadOnlySpan<byte> key, int depth)
    {
        var bytes = key.Length - depth;
        if (bytes >= HeadBytes)
            return BinaryPrimitives.ReadUInt64BigEndian(key[depth..]);
        if (bytes <= 0)
            return 0;
        if (key.Length >= HeadBytes)
            return BinaryPrimitives.ReadUInt64BigEndian(key[^HeadBytes..]) << (8 * (HeadBytes - bytes));
        ulong head = 0;
        for (var index = 0; index < bytes; index++)
            head |= (ulong)key[depth + index] << (56 - (8 * index));
        return head;
    }

    // The number of heads that are less than one. The words after them may be anything, but there is a run of words.
    private static int CountLess(ReadOnlySpan<ulong> words, int heads, ulong head)
    {
        var less = 0;
        while (heads > RunHeads)
        {
            var half = heads >> 1;
            // Compiled without a branch, which would be predicted wrongly half of the time.
            less += half * (words[less + half - 1] < head ? 1 : 0);
            heads -= half;
        }
        var isLess = Vector512.LessThan(Vector512.Create(words[less..]), Vector512.Create(head)).ExtractMostSignificantBits();
        return less + BitOperations.PopCount(isLess & ((1ul << heads) - 1));
    }

    // Whether the boundary is not greater than the key. Both have the same bytes up to this depth, padded with zeros.
    private bool IsNotAfter(int index, ReadOnlySpan<byte> key, int depth)
    {
        var bound = this[index];
        return bound.Length < depth || key.Length < depth ? bound.SequenceCompareTo(key) <= 0 : bound[depth..].SequenceCompareTo(key[depth..]) <= 0;
    }

    // Among keys from an index to another one that have the same bytes up to the end of a head.
    private int CountWhole(int first, int end, ReadOnlySpan<byte> key)
    {
        while (first < end)
        {
            var middle = (first + end) >> 1;
            if (this[middle].SequenceCompareTo(key) <= 0)
                first = middle + 1;
            else
                end = middle;
        }
        return first;
    }

    // Builds the tree in one pass over the keys for each level, depth first, so that a node's children follow it.
    private ulong[] Nodes()
    {
        var words = new List<ulong>(Count + (Count / 2) + RunHeads);
        var left = new List<(int First, int End, int Depth, int Entry)> { (0, Count, 0, -1) };
        while (left.Count > 0)
        {
            var keys = left[^1];
            left.RemoveAt(left.Count - 1);
            if (keys.Entry >= 0)
                words[keys.Entry] |= (ulong)(uint)words.Count << 32;
            AddNode(words, keys.First, keys.End, keys.Depth, left);
        }
        // So that the last node's heads are followed by a run of words too.
        words.AddRange(new ulong[RunHeads]);
        return [.. words];
    }

    private void AddNode(List<ulong> words, int first, int end, int depth, List<(int First, int End, int Depth, int Entry)> left)
    {
        // The keys are sorted, so all of them share the common prefix of the first and the last.
        var prefixBytes = first == end ? 0 : Math.Min(this[first][depth..].CommonPrefixLength(this[end - 1][depth..]), PrefixBytesMax);
        var shape = words.Count;
        words.Add(0);
        for (var remaining = prefixBytes; remaining > 0; remaining -= HeadBytes)
        {
            var bytes = Math.Min(remaining, HeadBytes);
            words.Add(Head(this[first], depth) >> (8 * (HeadBytes - bytes)));
            depth += bytes;
        }
        var heads = 0;
        for (var index = first; index < end; index++)
        {
            var head = Head(this[index], depth);
            if (heads > 0 && words[^1] == head)
                continue;
            words.Add(head);
            heads++;
        }
        words[shape] = (uint)(end - first) | ((ulong)(uint)heads << CountBits) | ((ulong)(uint)prefixBytes << (2 * CountBits));
        if (heads < end - first)
            AddEntries(words, first, end, depth, left);
    }

    private void AddEntries(List<ulong> words, int first, int end, int depth, List<(int First, int End, int Depth, int Entry)> left)
    {
        var already = left.Count;
        for (var next = first; first < end; first = next)
        {
            var head = Head(this[first], depth);
            while (next < end && Head(this[next], depth) == head)
                next++;
            // Keys that end within the head have no rest that a child could tell apart.
            if (next - first > 1 && this[first].Length >= depth + HeadBytes)
                left.Add((first, next, depth + HeadBytes, words.Count));
            words.Add((uint)first);
        }
        // The last of the list is the next node, and that is to be the first child.
        left.Reverse(already, left.Count - already);
    }
}
