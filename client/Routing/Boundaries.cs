using System.Buffers.Binary;

namespace KvCluster.Client.Routing;

/// <summary>
/// Sorted keys, immutable, laid out to count how many of them are not greater than a given key. Keys are grouped in blocks. A block keeps the first 8 bytes
/// of each of its keys after the prefix that they share, so a search reads few cache lines and long common prefixes do not slow it down. The first keys of
/// the blocks form such a list again. Any thread; a search takes no lock and allocates nothing.
/// </summary>
internal sealed class Boundaries
{
    // 64 heads are 8 cache lines. A binary search touches about three of them.
    private const int BlockKeys = 64;
    private readonly byte[] _bytes;
    private readonly int[] _offsets;
    private readonly ulong[] _heads;
    private readonly int[] _prefixBytes;
    private readonly Boundaries? _firstOfBlocks;

    /// <param name="keys">In ascending order; duplicates are allowed.</param>
    public Boundaries(IReadOnlyList<byte[]> keys)
    {
        _offsets = new int[keys.Count + 1];
        for (var index = 0; index < keys.Count; index++)
            _offsets[index + 1] = checked(_offsets[index] + keys[index].Length);
        _bytes = new byte[_offsets[^1]];
        for (var index = 0; index < keys.Count; index++)
            keys[index].CopyTo(_bytes, _offsets[index]);
        _heads = new ulong[keys.Count];
        _prefixBytes = new int[(keys.Count + BlockKeys - 1) / BlockKeys];
        for (var block = 0; block < _prefixBytes.Length; block++)
            FillBlock(block);
        if (_prefixBytes.Length > 1)
            _firstOfBlocks = new Boundaries([.. Enumerable.Range(0, _prefixBytes.Length).Select(block => keys[block * BlockKeys])]);
    }

    public int Count => _heads.Length;

    /// <summary>The key at an index.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.AsSpan(_offsets[index], _offsets[index + 1] - _offsets[index]);

    /// <summary>The number of keys that are less than or equal to this one.</summary>
    public int CountNotAfter(ReadOnlySpan<byte> key)
    {
        if (_firstOfBlocks is null)
            return Count == 0 ? 0 : CountInBlock(0, key);
        var blocks = _firstOfBlocks.CountNotAfter(key);
        return blocks == 0 ? 0 : ((blocks - 1) * BlockKeys) + CountInBlock(blocks - 1, key);
    }

    private static ulong Head(ReadOnlySpan<byte> bytes)
    {
        if (bytes.Length >= sizeof(ulong))
            return BinaryPrimitives.ReadUInt64BigEndian(bytes);
        ulong head = 0;
        for (var index = 0; index < bytes.Length; index++)
            head |= (ulong)bytes[index] << (56 - (8 * index));
        return head;
    }

    private void FillBlock(int block)
    {
        var first = block * BlockKeys;
        var end = Math.Min(first + BlockKeys, Count);
        // The keys are sorted, so all of them share the common prefix of the first and the last.
        var prefix = _prefixBytes[block] = this[first].CommonPrefixLength(this[end - 1]);
        for (var index = first; index < end; index++)
            _heads[index] = Head(this[index][prefix..]);
    }

    private int CountInBlock(int block, ReadOnlySpan<byte> key)
    {
        var first = block * BlockKeys;
        var count = Math.Min(BlockKeys, Count - first);
        var prefix = this[first][.._prefixBytes[block]];
        if (!key.StartsWith(prefix))
            return key.SequenceCompareTo(prefix) < 0 ? 0 : count;
        var head = Head(key[prefix.Length..]);
        var heads = _heads.AsSpan(first, count);
        var (low, high) = (0, count);
        while (low < high)
        {
            var middle = (low + high) >> 1;
            // Heads are padded with zeros, so equal heads do not decide the order of the keys.
            if (heads[middle] < head || (heads[middle] == head && this[first + middle].SequenceCompareTo(key) <= 0))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
}
