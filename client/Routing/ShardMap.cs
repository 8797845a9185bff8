using Google.Protobuf;
using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// All shards of a cluster by key range. The ranges are immutable: if they change, another map is built and swapped by reference. The route of a range (its
/// leader) is a separate reference that is replaced in place. Every key belongs to one slot, which is a shard's range or a gap between shards; only an
/// incomplete map has gaps. Any thread.
/// </summary>
internal sealed class ShardMap
{
    /// <summary>The shard of a gap. No cluster has it; ids count from 0.</summary>
    public static readonly ShardId NoShard = new(uint.MaxValue);

    // Slot 0 begins at the empty key, slot n at boundary n - 1.
    private readonly Boundaries _boundaries;
    private readonly ShardRoute?[] _routes;
    // The routes' shards, without the cache misses that their objects cost.
    private readonly ShardId[] _shards;
    // The shards of all routes given to the constructor, also of routes that others hide. Later maps take their order from this list.
    private readonly ShardId[] _order;

    /// <summary>Takes routes in any order. If ranges overlap, the one with the later start wins; with equal starts the newer generation wins.</summary>
    public ShardMap(IEnumerable<ShardRoute> routes)
        : this(Sorted([.. routes]))
    {
    }

    // Takes the sorted routes in one pass.
    private ShardMap(ShardRoute[] sorted)
    {
        _order = Array.ConvertAll(sorted, static route => route.ShardId);
        var boundaries = new List<ReadOnlyMemory<byte>>(sorted.Length);
        var slots = new List<ShardRoute?>(sorted.Length + 1) { null };
        for (var index = 0; index < sorted.Length; index++)
        {
            var route = sorted[index];
            Add(route.Start, route);
            if (!route.End.IsEmpty && (index + 1 == sorted.Length || route.End.Span.SequenceCompareTo(sorted[index + 1].Start.Span) < 0))
                Add(route.End, null);
        }
        _boundaries = new Boundaries(boundaries);
        _routes = [.. slots];
        _shards = Array.ConvertAll(_routes, static route => route?.ShardId ?? NoShard);

        void Add(ByteString start, ShardRoute? route)
        {
            if (start.IsEmpty)
            {
                slots[0] = route;
                return;
            }
            boundaries.Add(start.Memory);
            slots.Add(route);
        }
    }

    /// <summary>Slots are numbered from 0 up to this, exclusive.</summary>
    public int SlotCount => _routes.Length;

    /// <summary>The shards, by range.</summary>
    public IEnumerable<ShardRoute> Routes
    {
        get
        {
            for (var slot = 0; slot < _routes.Length; slot++)
            {
                if (RouteOf(slot) is { } route)
                    yield return route;
            }
        }
    }

    /// <summary>The slot that contains the key.</summary>
    public int FindSlot(ReadOnlySpan<byte> key) => _boundaries.CountNotAfter(key);

    /// <summary>The newest known route of a slot; null for a gap.</summary>
    public ShardRoute? RouteOf(int slot) => Volatile.Read(ref _routes[slot]);

    /// <summary>The shard of a slot, or <see cref="NoShard"/> for a gap.</summary>
    public ShardId ShardOf(int slot) => _shards[slot];

    /// <summary>The shard that owns the key; null if the map has a gap there.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key) => RouteOf(FindSlot(key));

    /// <summary>The shard whose range is just before <paramref name="endExclusive"/>; empty means the end of all keys.</summary>
    public ShardRoute? FindBefore(ReadOnlySpan<byte> endExclusive)
    {
        if (endExclusive.IsEmpty)
            return RouteOf(SlotCount - 1);
        var slot = FindSlot(endExclusive);
        while (slot > 0 && _boundaries[slot - 1].SequenceEqual(endExclusive))
            slot--;
        return RouteOf(slot);
    }

    /// <summary>Finds the key in a slot or in the one after it; compares it with two boundaries.</summary>
    public bool TryFindNear(int slot, ReadOnlySpan<byte> key, out int found)
    {
        found = slot;
        if (slot == _boundaries.Count || key.SequenceCompareTo(_boundaries[slot]) < 0)
            return slot == 0 || _boundaries[slot - 1].SequenceCompareTo(key) <= 0;
        found = slot + 1;
        return found == _boundaries.Count || key.SequenceCompareTo(_boundaries[found]) < 0;
    }

    /// <summary>Replaces a route with a newer one of the same range. Returns false if there is none, and another map is needed.</summary>
    public bool TryReplace(ShardRoute route)
    {
        var slot = FindSlot(route.Start.Span);
        if (RouteOf(slot) is not { } known || known.ShardId != route.ShardId || known.Start != route.Start || known.End != route.End)
            return false;
        Volatile.Write(ref _routes[slot], route);
        return true;
    }

    /// <summary>A map of these routes, without sorting those that this map was made of.</summary>
    /// <param name="routes">All routes of the new map.</param>
    /// <param name="changed">Those of them that are not in this map, or with another range.</param>
    public ShardMap With(Dictionary<ShardId, ShardRoute> routes, HashSet<ShardId> changed)
    {
        var others = Sorted([.. changed.Select(shard => routes[shard])]);
        var merged = new List<ShardRoute>(routes.Count);
        var next = 0;
        foreach (var shard in _order)
        {
            if (changed.Contains(shard) || !routes.TryGetValue(shard, out var route))
                continue;
            while (next < others.Length && Compare(others[next], route) < 0)
                merged.Add(others[next++]);
            merged.Add(route);
        }
        merged.AddRange(others.AsSpan(next));
        // Routes are missing if an earlier change ended with an exception, before it had a map.
        return merged.Count == routes.Count ? new ShardMap([.. merged]) : new ShardMap(routes.Values);
    }

    private static int Compare(ShardRoute left, ShardRoute right) => left.Start.Span.SequenceCompareTo(right.Start.Span) is not 0 and var order
        ? order
        : left.Generation.CompareTo(right.Generation);

    // Maps are sent and kept in order, and comparing neighbours takes one pass.
    private static ShardRoute[] Sorted(ShardRoute[] routes)
    {
        for (var index = 1; index < routes.Length; index++)
        {
            if (Compare(routes[index - 1], routes[index]) > 0)
            {
                Array.Sort(routes, Compare);
                break;
            }
        }
        return routes;
    }
}
