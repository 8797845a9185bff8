using KvCluster.Client.Telemetry;

namespace KvCluster.Client.Routing;

/// <summary>
/// A cache in front of one shard map. It tries the slot of the last key first, then, by hash, the slot of the key's longest prefix up to a delimiter. A
/// prefix is cached only if all keys with it belong to one slot, so the keys of a path share one entry and keys without a path take none. An entry is only a
/// guess that is used after the slot's bounds have been compared with the key, so neither collisions nor races can make a result wrong. Each map with its
/// ranges has its own cache. Any thread; takes no lock and allocates nothing.
/// </summary>
internal sealed class PrefixCache
{
    private const byte Delimiter = (byte)'/';
    private const int EntriesMin = 1 << 8;
    // At most 1 MiB. More would not fit in a processor's cache, and the map's own search is then as fast.
    private const int EntriesMax = 1 << 18;
    private readonly ShardMap _map;
    private readonly RouteCounts _counts;
    // Slot + 1; 0 means empty.
    private readonly int[] _entries;
    private int _last;

    public PrefixCache(ShardMap map, RouteCounts counts)
    {
        _map = map;
        _counts = counts;
        _entries = new int[Math.Clamp((int)System.Numerics.BitOperations.RoundUpToPowerOf2((uint)map.SlotCount * 4), EntriesMin, EntriesMax)];
    }

    /// <summary>The slot of the map that contains the key.</summary>
    public int FindSlot(ReadOnlySpan<byte> key)
    {
        var last = Volatile.Read(ref _last);
        if (_map.Holds(last, key))
        {
            _counts.Hit();
            return last;
        }
        var prefix = key[..(key.LastIndexOf(Delimiter) + 1)];
        if (prefix.IsEmpty)
        {
            _counts.Miss();
            return Keep(_map.FindSlot(key));
        }
        ref var entry = ref _entries[(int)(Hash(prefix) & (uint)(_entries.Length - 1))];
        var guess = Volatile.Read(ref entry) - 1;
        if (guess >= 0 && _map.Holds(guess, key))
        {
            _counts.Hit();
            return Keep(guess);
        }
        _counts.Miss();
        var slot = _map.FindSlot(key);
        if (_map.HoldsPrefix(slot, prefix))
            Volatile.Write(ref entry, slot + 1);
        return Keep(slot);
    }

    private static uint Hash(ReadOnlySpan<byte> bytes)
    {
        const ulong Factor = 0x9E3779B97F4A7C15;
        var hash = (ulong)bytes.Length;
        for (; bytes.Length >= sizeof(ulong); bytes = bytes[sizeof(ulong)..])
            hash = Mix(hash ^ BitConverter.ToUInt64(bytes));
        foreach (var one in bytes)
            hash = (hash ^ one) * Factor;
        return (uint)(Mix(hash) >> 32);

        static ulong Mix(ulong value) => System.Numerics.BitOperations.RotateLeft(value * Factor, 29);
    }

    private int Keep(int slot)
    {
        Volatile.Write(ref _last, slot);
        return slot;
    }
}
