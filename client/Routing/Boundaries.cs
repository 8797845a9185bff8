using System.Buffers.Binary;

namespace KvCluster.Client.Routing;

/// <summary>
/// Sorted keys, immutable, packed for one question: how many of them are not after a key. Keys lie in blocks; a block keeps the first
/// 8 bytes of each of its keys behind the prefix that they share, so that a search reads few cache lines and long common paths cost it
/// nothing. The first keys of the blocks are such a list again. Any thread, no lock, no allocation in a search.
/// </summary>
internal sealed class Boundaries
{
    // 64 heads are 8 cache lines, of which a binary search touches about three.
    private const int BlockKeys = 64;
    private readonly byte[] _bytes;
    private readonly int[] _offsets;
    private readonly ulong[] _heads;
    private readonly int[] _prefixBytes;
    private readonly Boundaries? _firstOfBlocks;

    /// <param name="keys">Ascending; equal ones are allowed.</param>
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

    /// <summary>The key at a place in the order.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.AsSpan(_offsets[index], _offsets[index + 1] - _offsets[index]);

    /// <summary>How many keys are less than this one or equal to it.</summary>
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
        // Sorted: what the first and the last share, all share.
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
            // Heads are padded with zeros, so equal ones say nothing of the keys.
            if (heads[middle] < head || (heads[middle] == head && this[first + middle].SequenceCompareTo(key) <= 0))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
}
