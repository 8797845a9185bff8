using KvCluster.V1;

namespace KvCluster.Client.Routing;

/// <summary>
/// What this process knows of the cluster: the shard map with its prefix cache, and the nodes' addresses. Read without a lock; folded in
/// from map streams and route hints, where a greater (generation, epoch) of a shard replaces a lesser one.
/// </summary>
internal sealed class RouteTable
{
    private readonly Lock _lock = new();
    private readonly Dictionary<uint, ShardRoute> _routes = [];
    private volatile Snapshot _snapshot = Snapshot.Empty;
    private TaskCompletionSource _changed = NewSignal();

    /// <summary>Routes that hints and streams have replaced: requests sent by the old ones were stale.</summary>
    public long Replaced { get; private set; }

    /// <summary>Whether a whole map has been seen.</summary>
    public bool IsKnown => _snapshot.Known;

    /// <summary>The name of the cluster; empty before the first map.</summary>
    public string Cluster => _snapshot.Cluster;

    /// <summary>The shards by range.</summary>
    public ShardMap Map => _snapshot.Map;

    /// <summary>Addresses by node id.</summary>
    public IReadOnlyDictionary<uint, string> Nodes => _snapshot.Nodes;

    /// <summary>The shard that owns the key; null if that is not known.</summary>
    public ShardRoute? Find(ReadOnlySpan<byte> key) => _snapshot.Cache.Find(key);

    /// <summary>Ends at the next change of the map. Taken before looking, so that no change is missed.</summary>
    public Task NextChange()
    {
        lock (_lock)
            return _changed.Task;
    }

    /// <summary>Takes in a message of a map stream.</summary>
    public void Fold(V1.ShardMap message)
    {
        lock (_lock)
        {
            var changed = !_snapshot.Known && message.Complete;
            if (message.Complete)
                changed |= ForgetAllBut(message.Shards);
            foreach (var route in message.Shards)
                changed |= ReplaceIfNewerLocked(route);
            var nodes = message.Complete ? [] : new Dictionary<uint, string>(_snapshot.Nodes);
            foreach (var node in message.Nodes)
                nodes[node.Node] = node.Address;
            changed |= !SameNodes(nodes, _snapshot.Nodes);
            var cluster = message.Cluster.Length > 0 ? message.Cluster : _snapshot.Cluster;
            if (changed)
                PublishLocked(new Snapshot(new ShardMap(_routes.Values), nodes, cluster, _snapshot.Known || message.Complete));
        }
    }

    /// <summary>Takes in what a node answered to a request that was sent to the wrong place. True: something was news.</summary>
    public bool Fold(RouteHint hint)
    {
        lock (_lock)
        {
            var changed = false;
            foreach (var route in hint.Routes)
                changed |= ReplaceIfNewerLocked(route);
            if (changed)
                PublishLocked(_snapshot with { Map = new ShardMap(_routes.Values) });
            return changed;
        }
    }

    private static TaskCompletionSource NewSignal() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private static bool SameNodes(Dictionary<uint, string> left, IReadOnlyDictionary<uint, string> right) =>
        left.Count == right.Count && left.All(node => right.TryGetValue(node.Key, out var address) && address == node.Value);

    private bool ForgetAllBut(IEnumerable<ShardRoute> shards)
    {
        var kept = shards.Select(route => route.Shard).ToHashSet();
        var gone = _routes.Keys.Where(shard => !kept.Contains(shard)).ToArray();
        foreach (var shard in gone)
            _routes.Remove(shard);
        return gone.Length > 0;
    }

    private bool ReplaceIfNewerLocked(ShardRoute route)
    {
        if (_routes.TryGetValue(route.Shard, out var known) && !IsNewer(route, known))
            return false;
        _routes[route.Shard] = route;
        Replaced++;
        return true;
    }

    // Within one epoch the leader becomes known once; "none known" never replaces it.
    private static bool IsNewer(ShardRoute route, ShardRoute known) =>
        (route.Generation, route.Epoch).CompareTo((known.Generation, known.Epoch)) switch
        {
            > 0 => true,
            0 => known.Leader == 0 && route.Leader != 0,
            _ => false,
        };

    private void PublishLocked(Snapshot snapshot)
    {
        _snapshot = snapshot with { Cache = new PrefixCache(snapshot.Map) };
        var changed = _changed;
        _changed = NewSignal();
        changed.SetResult();
    }

    private sealed record Snapshot(ShardMap Map, IReadOnlyDictionary<uint, string> Nodes, string Cluster, bool Known)
    {
        public static readonly Snapshot Empty = new(new ShardMap([]), new Dictionary<uint, string>(), "", false);

        public PrefixCache Cache { get; init; } = new(Map);
    }
}
