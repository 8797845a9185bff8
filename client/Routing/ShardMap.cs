using System.Buffers.Binary;
using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// All shards of a cluster by key range, immutable: a search over 8-byte heads, taken after the prefix that all starts share, then over
/// whole keys where heads are equal. Swapped by reference; any thread.
/// </summary>
internal sealed class ShardMap
{
    private readonly byte[] _prefix;
    private readonly ulong[] _heads;
    private readonly byte[][] _starts;
    private readonly ShardRoute[] _routes;

    /// <summary>Takes the routes of shards whose ranges do not overlap, in any order.</summary>
    public ShardMap(IEnumerable<ShardRoute> routes)
    {
        _routes = [.. routes.OrderBy(route => route.Start.ToByteArray(), Comparer<byte[]>.Create((a, b) => a.AsSpan().SequenceCompareTo(b)))];
        _starts = [.. _routes.Select(route => route.Start.ToByteArray())];
        _prefix = CommonPrefix(_starts);
        _heads = [.. _starts.Select(start => Head(start.Length < _prefix.Length ? [] : start.AsSpan(_prefix.Length)))];
    }

    /// <summary>The shards, by range.</summary>
    public ReadOnlySpan<ShardRoute> Routes => _routes;

    /// <summary>The shard that owns the key; null where the map has a gap.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key)
    {
        var index = LastStartNotAfter(key);
        if (index < 0)
            return null;
        var route = _routes[index];
        return route.End.IsEmpty || key.SequenceCompareTo(route.End.Span) < 0 ? route : null;
    }

    /// <summary>The shard with the range just before the place where <paramref name="endExclusive"/> (empty: the end of all keys) lies.</summary>
    public ShardRoute? FindBefore(ReadOnlySpan<byte> endExclusive)
    {
        if (endExclusive.IsEmpty)
            return _routes.Length == 0 ? null : _routes[^1];
        var index = LastStartNotAfter(endExclusive);
        if (index >= 0 && _starts[index].AsSpan().SequenceEqual(endExclusive))
            index--;
        return index < 0 ? null : _routes[index];
    }

    // The first start is the empty key in every complete map, so the common prefix is that of the others.
    private static byte[] CommonPrefix(byte[][] starts)
    {
        var named = starts.Where(start => start.Length > 0).ToArray();
        if (named.Length == 0)
            return [];
        var shared = named[0].AsSpan().CommonPrefixLength(named[^1]);
        return named[0][..shared];
    }

    private static ulong Head(ReadOnlySpan<byte> bytes)
    {
        if (bytes.Length >= sizeof(ulong))
            return BinaryPrimitives.ReadUInt64BigEndian(bytes);
        Span<byte> padded = stackalloc byte[sizeof(ulong)];
        bytes.CopyTo(padded);
        return BinaryPrimitives.ReadUInt64BigEndian(padded);
    }

    private int LastStartNotAfter(ReadOnlySpan<byte> key)
    {
        if (!key.StartsWith(_prefix))
            return key.SequenceCompareTo(_prefix) < 0 ? LastEmptyStart() : _starts.Length - 1;
        var head = Head(key[_prefix.Length..]);
        var low = 0;
        var high = _starts.Length;
        while (low < high)
        {
            var middle = (int)((uint)(low + high) >> 1);
            if (IsNotAfter(middle, head, key))
                low = middle + 1;
            else
                high = middle;
        }
        return low - 1;
    }

    private bool IsNotAfter(int index, ulong head, ReadOnlySpan<byte> key) =>
        _starts[index].Length < _prefix.Length || _heads[index] < head || (_heads[index] == head && _starts[index].AsSpan().SequenceCompareTo(key) <= 0);

    private int LastEmptyStart() => _starts.Length > 0 && _starts[0].Length == 0 ? 0 : -1;
}
