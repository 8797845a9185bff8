using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// Chooses the replica that gets a call: the leader of the key's shard, or for a read whose mode allows it one of all replicas. A node whose connection has
/// just failed or takes long is left out while another one can be reached. Used by <see cref="CallRouter"/> on the caller's thread; no locks, no allocations.
/// </summary>
internal sealed class ReplicaChoice(RouteTable table, NodeConnections connections) : IDestinations
{
    private int _spread;

    /// <inheritdoc/>
    public bool NeedMap => true;

    /// <summary>
    /// The leader. If none is known, or it has just been found unreachable, the shard's other nodes in turn, which will name the new leader. For a read at
    /// any replica, the replicas in turn, and the leader after a replica that did not serve it.
    /// </summary>
    /// <inheritdoc/>
    public Destination ForCall(ShardRoute? route, int turn, bool atAnyReplica)
    {
        if (route is null)
            return new Destination(null, "the shard map has no shard for the key");
        if (Reachable(route, turn, atAnyReplica) is { } address)
            return new Destination(address, null) { Generation = route.Generation };
        return Slow(route) is { } slow
            ? new Destination(slow, null) { Generation = route.Generation, IsSlow = true }
            : new Destination(null, $"none of the nodes of shard {route.ShardId} can be reached{WhyNot(route)}");
    }

    /// <summary>The next of the other replicas.</summary>
    /// <inheritdoc/>
    public Destination ForHedge(ShardRoute? route, string first) => route is not null && NextReplica(route, first) is { } address
        ? new Destination(address, null) { Generation = route.Generation }
        : new Destination(null, "no other replica can be reached");

    /// <summary>The leader as far as known; for a scan at any replica, the replicas in every other turn.</summary>
    /// <inheritdoc/>
    public Destination ForStream(ShardRoute? route, int turn, bool atAnyReplica)
    {
        if (route is not null && atAnyReplica && turn % 2 == 0 && NextReplica(route) is { } replica)
            return new Destination(replica, null);
        return route is not null && table.Nodes.TryGetValue(route.LeaderId, out var leader)
            ? new Destination(leader, null)
            : new Destination(null, "the shard map names no node to ask");
    }

    /// <summary>Does nothing, because the next attempt finds the node's connection broken or follows a newer map.</summary>
    public void Pause(string address, string failure)
    {
    }

    /// <inheritdoc/>
    public CallInvoker OperatorCalls(CallRouter calls, NodeChannels channels) => new NodeFanOut(calls, channels);

    public ValueTask DisposeAsync() => ValueTask.CompletedTask;

    private string? Reachable(ShardRoute route, int turn, bool atAnyReplica)
    {
        if (atAnyReplica && turn % 2 == 0)
            return NextReplica(route);
        if (TryReach(route.LeaderId, out var leader))
            return leader;
        for (var place = 0; place < route.Nodes.Count; place++)
        {
            if (TryReach(new(route.Nodes[(turn + place) % route.Nodes.Count]), out var other))
                return other;
        }
        return null;
    }

    // A node whose connection is still being made, preferably the leader.
    private string? Slow(ShardRoute route)
    {
        foreach (var node in route.Nodes.Prepend(route.Leader))
        {
            if (table.Nodes.TryGetValue(new(node), out var address) && connections.To(address).IsSlow)
                return address;
        }
        return null;
    }

    // The failure of the connection to the leader says most.
    private string WhyNot(ShardRoute route) =>
        table.Nodes.TryGetValue(route.LeaderId, out var address) && connections.To(address).Failure is { Length: > 0 } failure ? $": {failure}" : "";

    // Spreads the reads of one client evenly over the replicas.
    private string? NextReplica(ShardRoute route, string? except = null)
    {
        var turn = (uint)Interlocked.Increment(ref _spread);
        for (var place = 0u; place < route.Nodes.Count; place++)
        {
            if (TryReach(new(route.Nodes[(int)((turn + place) % (uint)route.Nodes.Count)]), out var address) && address != except)
                return address;
        }
        return null;
    }

    private bool TryReach(NodeId node, [NotNullWhen(true)] out string? address) =>
        table.Nodes.TryGetValue(node, out address) && !connections.To(address).IsPaused;
}
