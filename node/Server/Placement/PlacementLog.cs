using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>A node's log messages about the placement of leaders and replicas, one line per decision.</summary>
internal static partial class PlacementLog
{
    [LoggerMessage(10, LogLevel.Information, "Node {Node} is draining; it transfers its leaderships")]
    public static partial void Drains(ILogger log, uint node);

    [LoggerMessage(11, LogLevel.Information, "Node {Node} transferred {GivenAway} leaderships; {Kept} remain")]
    public static partial void Drained(ILogger log, uint node, int givenAway, int kept);

    [LoggerMessage(13, LogLevel.Information, "Shard {Shard}: the replica on node {Node} is being replaced: {Step}")]
    public static partial void Replaces(ILogger log, uint shard, uint node, string step);

    [LoggerMessage(14, LogLevel.Warning, "Shard {Shard}: the replica on this node is lost and not replaced yet: {Reason}")]
    public static partial void NotReplaced(ILogger log, uint shard, string reason);

    [LoggerMessage(17, LogLevel.Information, "Node {Node} is now the placement controller")]
    public static partial void Controls(ILogger log, uint node);

    [LoggerMessage(18, LogLevel.Information, "Shard {Shard}: its replica moves from node {FromNode} to node {ToNode}: {Reason}")]
    public static partial void Moves(ILogger log, uint shard, uint fromNode, uint toNode, string reason);

    [LoggerMessage(19, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} moved to node {ToNode}")]
    public static partial void Moved(ILogger log, uint shard, uint fromNode, uint toNode);

    [LoggerMessage(20, LogLevel.Warning, "Replicas are not moved: {Reason}")]
    public static partial void NotMoved(ILogger log, string reason);

    [LoggerMessage(25, LogLevel.Information, "Shard {Shard}: a replica is added on node {ToNode}: {Reason}")]
    public static partial void Adds(ILogger log, uint shard, uint toNode, string reason);

    [LoggerMessage(26, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} is removed: {Reason}")]
    public static partial void Removes(ILogger log, uint shard, uint fromNode, string reason);
}
