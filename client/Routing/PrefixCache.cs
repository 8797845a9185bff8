using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// In front of one shard map: the shortest prefix of a key, up to a delimiter, that lies wholly in one shard, to that shard; so keys of one
/// prefix share an entry and unique keys do not flood it. Lives and dies with its map. Any thread, no lock; bounded: a newer entry takes
/// the place of an older one with the same slot.
/// </summary>
internal sealed class PrefixCache(ShardMap map)
{
    private const byte Delimiter = (byte)'/';
    private const int Slots = 4096;
    private const uint HashSeed = 2166136261;
    private const uint HashFactor = 16777619;
    private readonly Entry?[] _entries = new Entry?[Slots];
    private Entry? _last;
    private long _hits;
    private long _misses;

    /// <summary>Keys answered here; about, since concurrent counts may be lost.</summary>
    public long Hits => _hits;

    /// <summary>Keys that went to the map; about.</summary>
    public long Misses => _misses;

    /// <summary>The shard that owns the key; null where the map has a gap.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key)
    {
        if (_last is { } last && key.StartsWith(last.Prefix))
        {
            _hits++;
            return last.Route;
        }
        var hash = HashSeed;
        for (var index = 0; index < key.Length; index++)
        {
            hash = (hash ^ key[index]) * HashFactor;
            if (key[index] != Delimiter)
                continue;
            if (_entries[hash % Slots] is { } entry && key[..(index + 1)].SequenceEqual(entry.Prefix))
            {
                _hits++;
                _last = entry;
                return entry.Route;
            }
        }
        _misses++;
        return FindAndKeep(key);
    }

    private ShardRoute? FindAndKeep(ReadOnlySpan<byte> key)
    {
        var route = map.Find(key);
        if (route is null)
            return null;
        var hash = HashSeed;
        for (var index = 0; index < key.Length; index++)
        {
            hash = (hash ^ key[index]) * HashFactor;
            if (key[index] != Delimiter || !Owns(route, key[..(index + 1)]))
                continue;
            var entry = new Entry(key[..(index + 1)].ToArray(), route);
            _entries[hash % Slots] = entry;
            _last = entry;
            break;
        }
        return route;
    }

    // Every key with the prefix, which ends in a delimiter: from the prefix itself up to the prefix with its last byte raised.
    private static bool Owns(ShardRoute route, ReadOnlySpan<byte> prefix)
    {
        if (prefix.SequenceCompareTo(route.Start.Span) < 0)
            return false;
        if (route.End.IsEmpty)
            return true;
        Span<byte> after = prefix.Length <= 256 ? stackalloc byte[prefix.Length] : new byte[prefix.Length];
        prefix.CopyTo(after);
        after[^1]++;
        return after.SequenceCompareTo(route.End.Span) <= 0;
    }

    private sealed record Entry(byte[] Prefix, ShardRoute Route);
}
