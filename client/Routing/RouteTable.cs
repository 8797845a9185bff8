using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using KvCluster.Client.Runtime;
using KvCluster.Client.Telemetry;
using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// What this process knows of the cluster: the shard map with its last hit, and the nodes' addresses. Nothing else is remembered of keys: the search of the map
/// (<see cref="Boundaries"/>) is faster than a cache of their prefixes. Read without a lock. Updated from map streams and route hints; a route with a greater
/// (generation, epoch) replaces a lesser one of the same shard.
/// </summary>
internal sealed class RouteTable : IDisposable
{
    /// <summary>The shard of a key that no known route covers. No cluster has it; ids count from 0.</summary>
    public static readonly ShardId NoShard = ShardMap.NoShard;

    private readonly ClientRuntime _runtime;
    private readonly Lock _lock = new();
    private readonly Dictionary<ShardId, ShardRoute> _routes = [];
    private volatile Snapshot _snapshot;
    private TaskCompletionSource _changed;

    public RouteTable(ClientRuntime runtime)
    {
        _runtime = runtime;
        _changed = runtime.NewSignal();
        var map = new ShardMap([]);
        _snapshot = new Snapshot(
            map, new LastHit(map, Counts), new Dictionary<NodeId, string>(), "", "", false, ByteString.Empty, 0, new Dictionary<NodeId, string>());
    }

    /// <summary>Counts how keys found their shards.</summary>
    public RouteCounts Counts { get; } = new();

    /// <summary>Whether a complete map has been received.</summary>
    public bool IsKnown => _snapshot.Known;

    /// <summary>The name of the cluster; empty before the first map.</summary>
    public string Cluster => _snapshot.Cluster;

    /// <summary>Its random id; empty before the first map.</summary>
    public string ClusterId => _snapshot.ClusterId;

    /// <summary>The lineage of its data, as in the map; empty before the first one.</summary>
    public ByteString Lineage => _snapshot.Lineage;

    /// <summary>The greatest revision of the coordinator that a map had.</summary>
    public ulong Revision => _snapshot.Revision;

    /// <summary>The shards by range.</summary>
    public ShardMap Map => _snapshot.Map;

    /// <summary>Addresses by node id.</summary>
    public IReadOnlyDictionary<NodeId, string> Nodes => _snapshot.Nodes;

    /// <summary>Addresses for operators' calls, by node id.</summary>
    public IReadOnlyDictionary<NodeId, string> AdminAddresses => _snapshot.AdminAddresses;

    /// <summary>The shard that owns the key; null if that is not known.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key)
    {
        var snapshot = _snapshot;
        return snapshot.Map.RouteOf(snapshot.Last.FindSlot(key));
    }

    /// <summary>The same for a key that was searched before. It is searched again if the ranges have changed since then.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key, KeyPlace found) => IsCurrent(found) ? found.Map!.RouteOf(found.Slot) : Find(key);

    /// <summary>Where a key is in the map.</summary>
    public KeyPlace PlaceOf(ReadOnlySpan<byte> key)
    {
        var snapshot = _snapshot;
        return new KeyPlace(snapshot.Map, snapshot.Last.FindSlot(key));
    }

    /// <summary>Whether the ranges are still those by which a key was searched.</summary>
    public bool IsCurrent(KeyPlace found) => ReferenceEquals(found.Map, _snapshot.Map);

    /// <summary>The id of the shard that owns a key, or <see cref="NoShard"/>.</summary>
    public ShardId ShardOf(ReadOnlySpan<byte> key)
    {
        var snapshot = _snapshot;
        return snapshot.Map.ShardOf(snapshot.Last.FindSlot(key));
    }

    /// <summary>Completes at the next change of the map. Take it before reading the map, so that no change is missed.</summary>
    public Task NextChange()
    {
        lock (_lock)
            return _changed.Task;
    }

    /// <summary>Merges a message of a map stream. A map of another cluster than the first one's is rejected, so that two clusters never mix.</summary>
    /// <param name="message">The message.</param>
    /// <param name="foreign">If rejected: in words, which cluster it is of.</param>
    public bool TryFold(V1.ShardMap message, [NotNullWhen(false)] out string? foreign)
    {
        lock (_lock)
        {
            var before = _snapshot;
            foreign = before.ClusterId.Length > 0 && message.ClusterId.Length > 0 && before.ClusterId != message.ClusterId
                ? $"it belongs to cluster '{message.Cluster}' ({message.ClusterId}), but other endpoints belong to '{before.Cluster}' ({before.ClusterId})"
                : null;
            if (foreign is not null)
                return false;
            var forgotten = message.Complete && ForgetAllButLocked(message.Shards);
            var changed = new HashSet<ShardId>();
            var routes = FoldLocked(message.Shards, changed);
            var nodes = message.Complete ? [] : new Dictionary<NodeId, string>(before.Nodes);
            var admin = message.Complete ? [] : new Dictionary<NodeId, string>(before.AdminAddresses);
            foreach (var node in message.Nodes)
                (nodes[node.NodeId], admin[node.NodeId]) = (node.Address, node.AdminAddress.Length > 0 ? node.AdminAddress : node.Address);
            var after = before with
            {
                Nodes = SameNodes(nodes, before.Nodes) ? before.Nodes : nodes,
                AdminAddresses = SameNodes(admin, before.AdminAddresses) ? before.AdminAddresses : admin,
                Lineage = message.Lineage.IsEmpty || message.Lineage.Equals(before.Lineage) ? before.Lineage : message.Lineage,
                Cluster = message.Cluster.Length > 0 ? message.Cluster : before.Cluster,
                ClusterId = message.ClusterId.Length > 0 ? message.ClusterId : before.ClusterId,
                Known = before.Known || message.Complete,
            };
            // A greater revision alone is no news for those who wait.
            var isNews = routes || forgotten || after != before;
            after = after with { Revision = Math.Max(before.Revision, message.Revision) };
            if (isNews)
                PublishLocked(after, changed, forgotten);
            else
                _snapshot = after;
            return true;
        }
    }

    /// <summary>Merges a node's answer to a request that was sent to the wrong place. Returns true if something in it was new.</summary>
    public bool Fold(RouteHint hint)
    {
        lock (_lock)
        {
            var changed = new HashSet<ShardId>();
            if (!FoldLocked(hint.Routes, changed))
                return false;
            Counts.CountStale();
            PublishLocked(_snapshot, changed, false);
            return true;
        }
    }

    /// <summary>Wakes up those who wait for a change, as there will be none.</summary>
    public void Dispose()
    {
        Counts.Dispose();
        lock (_lock)
            _changed.TrySetResult();
    }

    private static bool SameNodes(Dictionary<NodeId, string> left, IReadOnlyDictionary<NodeId, string> right) =>
        left.Count == right.Count && left.All(node => right.TryGetValue(node.Key, out var address) && address == node.Value);

    // Within one epoch the leader becomes known once, and an unknown leader never replaces it.
    private static bool IsNewer(ShardRoute route, ShardRoute known) =>
        (route.Generation, route.Epoch).CompareTo((known.Generation, known.Epoch)) switch
        {
            > 0 => true,
            0 => known.LeaderId.IsNone && !route.LeaderId.IsNone,
            _ => false,
        };

    private bool ForgetAllButLocked(IEnumerable<ShardRoute> shards)
    {
        Invariant.CheckHeld(_lock);
        var kept = shards.Select(route => route.ShardId).ToHashSet();
        var gone = _routes.Keys.Where(shard => !kept.Contains(shard)).ToArray();
        foreach (var shard in gone)
            _routes.Remove(shard);
        return gone.Length > 0;
    }

    // Returns true if some route is newer. Most are new leaders of known ranges, which replace one reference each, however many shards there are. The others
    // are added to the changed ones.
    private bool FoldLocked(IEnumerable<ShardRoute> routes, HashSet<ShardId> changed)
    {
        Invariant.CheckHeld(_lock);
        var news = false;
        foreach (var route in routes)
        {
            if (_routes.TryGetValue(route.ShardId, out var known) && !IsNewer(route, known))
                continue;
            _routes[route.ShardId] = route;
            news = true;
            if (!_snapshot.Map.TryReplace(route))
                changed.Add(route.ShardId);
        }
        return news;
    }

    private void PublishLocked(Snapshot snapshot, HashSet<ShardId> changedRanges, bool forgotten)
    {
        Invariant.CheckHeld(_lock);
        if (changedRanges.Count > 0 || forgotten)
        {
            var map = snapshot.Map.With(_routes, changedRanges);
            snapshot = snapshot with { Map = map, Last = new LastHit(map, Counts) };
        }
        _snapshot = snapshot;
        ClientMetrics.MapChanged();
        var changed = _changed;
        _changed = _runtime.NewSignal();
        changed.TrySetResult();
    }

    private sealed record Snapshot(ShardMap Map, LastHit Last, IReadOnlyDictionary<NodeId, string> Nodes, string Cluster, string ClusterId, bool Known,
        ByteString Lineage, ulong Revision, IReadOnlyDictionary<NodeId, string> AdminAddresses);
}

/// <summary>Where a key is in a shard map. While the ranges stay the same, its newest route is there, so that nobody has to search it again.</summary>
/// <param name="Map">The map; null for a key that was not searched.</param>
/// <param name="Slot">The slot of the map.</param>
internal readonly record struct KeyPlace(ShardMap? Map, int Slot)
{
    /// <summary>The shard that owns the key, or <see cref="ShardMap.NoShard"/>.</summary>
    public ShardId Shard => Map is null ? ShardMap.NoShard : Map.ShardOf(Slot);
}
