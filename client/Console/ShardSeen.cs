using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.AdminConsole;

/// <summary>One shard, as its replicas report it.</summary>
/// <param name="replicas">At least one, each with the node it is on.</param>
internal sealed class ShardSeen(IReadOnlyList<(uint Node, ReplicaStatus Replica)> replicas)
{
    public IReadOnlyList<(uint Node, ReplicaStatus Replica)> Replicas { get; } = [.. replicas.OrderBy(replica => replica.Node)];

    /// <summary>The newest route that any of them knows.</summary>
    public ShardRoute Route { get; } = replicas.Select(replica => replica.Replica.Route).MaxBy(route => (route.Generation, route.Epoch))!;

    /// <summary>The replica with the greatest committed change; if several have it, the one that leads.</summary>
    public ReplicaStatus Newest { get; } =
        replicas.Select(replica => replica.Replica).MaxBy(replica => (replica.Committed?.Change ?? 0, replica.Role == Role.Leader))!;

    /// <summary>The node that leads; 0 if none reports that it does.</summary>
    public uint Leader => Replicas.Where(replica => replica.Replica.Role == Role.Leader)
        .OrderByDescending(replica => replica.Replica.Epoch).Select(replica => replica.Node).FirstOrDefault();

    /// <summary>The number of changes that a replica has not applied.</summary>
    public ulong LagOf(ReplicaStatus replica)
    {
        var (newest, applied) = (Newest.Committed?.Change ?? 0, replica.Applied?.Change ?? 0);
        return newest > applied ? newest - applied : 0;
    }
}
