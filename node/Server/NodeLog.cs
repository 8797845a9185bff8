using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>Log messages about a node's start and stop, one line per decision.</summary>
internal static partial class NodeLog
{
    [LoggerMessage(1, LogLevel.Information, "Node {Node} of cluster {Cluster} serves at {Address}, start {Starts}")]
    public static partial void Serves(ILogger log, NodeId node, string cluster, string address, ulong starts);

    [LoggerMessage(
        43, LogLevel.Information,
        "As measured on this disk, new journal segments are {Filled}, large records are {Compressed}, and up to {Writes} journal writes are in flight")]
    public static partial void JournalOptions(ILogger log, string filled, string compressed, int writes);

    [LoggerMessage(
        67, LogLevel.Information,
        "The last process did not stop cleanly; {Writes} writes were put back from the shared journal into the replicas' own")]
    public static partial void SharedJournalReplayed(ILogger log, int writes);

    [LoggerMessage(
        68, LogLevel.Warning,
        "The shared journal is damaged: records of '{Replica}' that were durable may be missing. It recovers them from its peers if it has any")]
    public static partial void SharedJournalDamaged(ILogger log, string replica);

    [LoggerMessage(7, LogLevel.Information, "Node {Node} stopped")]
    public static partial void Stopped(ILogger log, NodeId node);

    [LoggerMessage(8, LogLevel.Warning, "Node {Node} did not stop everything in time: {What}")]
    public static partial void StopTookTooLong(ILogger log, NodeId node, string what);

    [LoggerMessage(16, LogLevel.Information, "Created cluster {Cluster}: {Shards} shards of {Replicas} replicas on {Nodes} nodes")]
    public static partial void CreatedCluster(ILogger log, string cluster, int shards, int replicas, int nodes);

    [LoggerMessage(6, LogLevel.Information, "Waiting for {What} of cluster {Cluster}: {Reason}")]
    public static partial void WaitsForCluster(ILogger log, string what, string cluster, string reason);

    [LoggerMessage(
        53, LogLevel.Critical,
        "ALARM: the coordinator is not followed: {Reason}. The node waits; see 'The coordinator's data is lost' in deploy/OPERATIONS.md")]
    public static partial void NotFollowed(ILogger log, string reason);
}
