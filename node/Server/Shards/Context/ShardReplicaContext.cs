using KvCluster.Node.Shards.Disk;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Context;
using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Shards.Context;

/// <summary>What a shard's replica depends on.</summary>
/// <param name="Node">This node's id.</param>
/// <param name="Incarnation">Non-zero, and greater at each start of the process.</param>
/// <param name="Storage">Disk, executors and bounds. Its writer executor runs all of the shard's logic.</param>
/// <param name="Clock">Boot clock for leases and timers, wall clock for records.</param>
/// <param name="Peers">Sends frames to other nodes.</param>
/// <param name="Records">Reads and sets the shard's record.</param>
/// <param name="Replication">Times and windows of the protocol.</param>
/// <param name="Seed">For the protocol's random timeouts.</param>
/// <param name="RouteChanged">Called on the writer executor when this replica knows a newer route of its shard. Must not block.</param>
/// <param name="Log">Receives one line per decision.</param>
internal sealed record ShardReplicaContext(
    NodeId Node,
    ulong Incarnation,
    StoreContext Storage,
    TimeProvider Clock,
    IPeerTransport Peers,
    IShardRecords Records,
    ReplicationOptions Replication,
    ulong Seed,
    Action<ShardRoute> RouteChanged,
    ILogger Log)
{
    private readonly long _clockTicksPerMicrosecond = Clock.TimestampFrequency / 1_000_000;

    /// <summary>Measurements and traces of the shard.</summary>
    public required ShardTelemetry Telemetry { get; init; }

    /// <summary>The node's metrics.</summary>
    public required NodeMetrics Metrics { get; init; }

    /// <summary>The shared judgement of the node's disk. By default this replica is alone on it.</summary>
    public NodeDisk Disk { get; init; } = new(Clock);

    /// <summary>What the node's replicas must not do too often together. By default this replica is alone.</summary>
    public NodePaces Paces { get; init; } = new();

    /// <summary>Called on the writer executor when this replica has stopped by itself, with the reason. Must not block.</summary>
    public Action<Exception> Failed { get; init; } = static _ => { };

    /// <summary>The boot clock in microseconds. Any thread.</summary>
    public long NowUs() => MicrosecondsOf(Clock.GetTimestamp());

    /// <summary>A timestamp of the boot clock in microseconds. Any thread.</summary>
    public long MicrosecondsOf(long timestamp) => timestamp / _clockTicksPerMicrosecond;
}
