using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Context;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Shards;

/// <summary>What a shard's replica runs on.</summary>
/// <param name="Node">This node's id.</param>
/// <param name="Incarnation">Greater at each start of the process, non-zero.</param>
/// <param name="Storage">Disk, executors and bounds; its writer executor runs all of the shard's logic.</param>
/// <param name="Clock">Boot clock for leases and timers, wall clock for records.</param>
/// <param name="Peers">Sends frames to other nodes.</param>
/// <param name="Coordination">Reads and sets the shard's record.</param>
/// <param name="Replication">Times and windows of the protocol.</param>
/// <param name="Seed">For the protocol's random timeouts.</param>
/// <param name="RouteChanged">Told, on the writer executor, when this replica knows a newer route of its shard. Must not block.</param>
/// <param name="Log">One line a decision.</param>
internal sealed record ShardReplicaContext(
    uint Node,
    ulong Incarnation,
    StoreContext Storage,
    TimeProvider Clock,
    IPeerTransport Peers,
    IShardCoordination Coordination,
    ReplicationOptions Replication,
    ulong Seed,
    Action<ShardRoute> RouteChanged,
    ILogger Log)
{
    /// <summary>Measures and traces it.</summary>
    public required ShardTelemetry Telemetry { get; init; }

    /// <summary>The node's metrics.</summary>
    public required NodeMetrics Metrics { get; init; }

    /// <summary>What this node's replicas found out about their disk; by default this one is alone on it.</summary>
    public NodeDisk Disk { get; init; } = new(Clock);

    /// <summary>What decides where the simulation plants bugs.</summary>
    public ShardRules Rules { get; init; } = ShardRules.Own;

    /// <summary>Told, on the writer executor, why this replica stopped by itself. Must not block.</summary>
    public Action<Exception> Failed { get; init; } = static _ => { };
}
