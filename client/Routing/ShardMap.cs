using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// All shards of a cluster by key range. The ranges are immutable: if they change, another map is built and swapped by reference. The route of a range (its
/// leader) is a separate reference that is replaced in place. Every key belongs to one slot, which is a shard's range or a gap between shards; only an
/// incomplete map has gaps. Any thread.
/// </summary>
internal sealed class ShardMap
{
    // Slot 0 begins at the empty key, slot n at boundary n - 1.
    private readonly Boundaries _boundaries;
    private readonly ShardRoute?[] _routes;

    /// <summary>Takes routes in any order. If ranges overlap, the one with the later start wins; with equal starts the newer generation wins.</summary>
    public ShardMap(IEnumerable<ShardRoute> routes)
    {
        var sorted = routes.Select(route => (Start: route.Start.ToByteArray(), Route: route)).ToArray();
        Array.Sort(sorted, static (left, right) => left.Start.AsSpan().SequenceCompareTo(right.Start) is not 0 and var order
            ? order
            : left.Route.Generation.CompareTo(right.Route.Generation));
        var boundaries = new List<byte[]>(sorted.Length);
        var slots = new List<ShardRoute?>(sorted.Length + 1) { null };
        for (var index = 0; index < sorted.Length; index++)
        {
            var (start, route) = sorted[index];
            Add(start, route);
            if (!route.End.IsEmpty && (index + 1 == sorted.Length || route.End.Span.SequenceCompareTo(sorted[index + 1].Start) < 0))
                Add(route.End.ToByteArray(), null);
        }
        _boundaries = new Boundaries(boundaries);
        _routes = [.. slots];

        void Add(byte[] start, ShardRoute? route)
        {
            if (start.Length == 0)
            {
                slots[0] = route;
                return;
            }
            boundaries.Add(start);
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

    /// <summary>Whether the slot contains the key.</summary>
    public bool Holds(int slot, ReadOnlySpan<byte> key) =>
        (slot == 0 || _boundaries[slot - 1].SequenceCompareTo(key) <= 0) && (slot == _boundaries.Count || key.SequenceCompareTo(_boundaries[slot]) < 0);

    /// <summary>Whether the slot contains every key with the prefix. It is known to contain one of them.</summary>
    public bool HoldsPrefix(int slot, ReadOnlySpan<byte> prefix)
    {
        if (slot > 0 && _boundaries[slot - 1].SequenceCompareTo(prefix) > 0)
            return false;
        // The slot ends after that key: either at a boundary with the prefix, or after all keys that have it.
        return slot == _boundaries.Count || !_boundaries[slot].StartsWith(prefix);
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
}
