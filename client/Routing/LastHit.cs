using KvCluster.Client.Telemetry;

namespace KvCluster.Client.Routing;

/// <summary>
/// A guess in front of the search of one shard map: the slot in which the last key was found on this processor, or the slot after it, as keys often come in
/// order. The guess is used after the slot's boundaries have been compared with the key, so no race can make a result wrong. Keys in random order are never
/// near the last one, and comparing them would fetch boundaries that nothing else needs. So the guess is made only while it would have been right lately. Each
/// map with its ranges has its own. Any thread; takes no lock and allocates nothing.
/// </summary>
internal sealed class LastHit
{
    // Each processor's guess has cache lines of its own.
    private const int IntsPerPlace = 32;
    private const int TrustMax = 3;
    private readonly ShardMap _map;
    private readonly RouteCounts _counts;
    // Slot * 4 + trust.
    private readonly int[] _last;

    public LastHit(ShardMap map, RouteCounts counts)
    {
        _map = map;
        _counts = counts;
        _last = new int[counts.Places * IntsPerPlace];
        for (var place = 0; place < counts.Places; place++)
            _last[place * IntsPerPlace] = TrustMax;
    }

    /// <summary>The slot of the map that contains the key.</summary>
    public int FindSlot(ReadOnlySpan<byte> key)
    {
        var place = _counts.Place;
        ref var last = ref _last[place * IntsPerPlace];
        var before = Volatile.Read(ref last);
        var (slot, trust) = (before >> 2, before & TrustMax);
        if (trust > 0 && _map.TryFindNear(slot, key, out var found))
        {
            _counts.Hit(place);
            if (found != slot || trust != TrustMax)
                last = (found << 2) | TrustMax;
            return found;
        }
        _counts.Miss(place);
        found = _map.FindSlot(key);
        // The guess is judged even if it was not used.
        trust = (uint)(found - slot) <= 1 ? Math.Min(trust + 1, TrustMax) : Math.Max(trust - 1, 0);
        last = (found << 2) | trust;
        return found;
    }
}
