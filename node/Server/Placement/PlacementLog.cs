using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Placement;

/// <summary>A node's log messages about the placement of leaders and replicas, one line per decision.</summary>
internal static partial class PlacementLog
{
    [LoggerMessage(10, LogLevel.Information, "Node {Node} is draining; it transfers its leaderships")]
    public static partial void Drains(ILogger log, NodeId node);

    [LoggerMessage(11, LogLevel.Information, "Node {Node} transferred {GivenAway} leaderships; {Kept} remain")]
    public static partial void Drained(ILogger log, NodeId node, int givenAway, int kept);

    [LoggerMessage(13, LogLevel.Information, "Shard {Shard}: the replica on node {Node} is being replaced: {Step}")]
    public static partial void Replaces(ILogger log, ShardId shard, NodeId node, string step);

    [LoggerMessage(14, LogLevel.Warning, "Shard {Shard}: the replica on this node is lost and not replaced yet: {Reason}")]
    public static partial void NotReplaced(ILogger log, ShardId shard, string reason);

    [LoggerMessage(17, LogLevel.Information, "Node {Node} is now the placement controller")]
    public static partial void Controls(ILogger log, NodeId node);

    [LoggerMessage(18, LogLevel.Information, "Shard {Shard}: its replica moves from node {FromNode} to node {ToNode}: {Reason}")]
    public static partial void Moves(ILogger log, ShardId shard, NodeId fromNode, NodeId toNode, string reason);

    [LoggerMessage(19, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} moved to node {ToNode}")]
    public static partial void Moved(ILogger log, ShardId shard, NodeId fromNode, NodeId toNode);

    [LoggerMessage(20, LogLevel.Warning, "Replicas are not moved: {Reason}")]
    public static partial void NotMoved(ILogger log, string reason);

    [LoggerMessage(28, LogLevel.Error, "Operation {Operation} ended by an unexpected exception")]
    public static partial void OperationFailed(ILogger log, string operation, Exception failure);

    [LoggerMessage(25, LogLevel.Information, "Shard {Shard}: a replica is added on node {ToNode}: {Reason}")]
    public static partial void Adds(ILogger log, ShardId shard, NodeId toNode, string reason);

    [LoggerMessage(63, LogLevel.Error, "Shard {Shard}: its replica on this node cannot be rebuilt, and is tried again every few seconds: {Reason}. {Advice}")]
    public static partial void RebuildLacksRoom(ILogger log, ShardId shard, string reason, string advice);

    [LoggerMessage(64, LogLevel.Warning, "Shard {Shard}: the copy '{Name}' that was set aside ({Bytes} bytes, replica {Replica}) is deleted because its space "
        + "is needed. Its newest record is {Newest}; a majority without it has committed {Committed} in epoch {Epoch}, with equal trees at {Compared}")]
    public static partial void CopyReleased(
        ILogger log, ShardId shard, string name, long bytes, ReplicaId replica, string newest, string committed, ulong epoch, string compared);

    [LoggerMessage(65, LogLevel.Warning, "What is left of copies that were set aside could not be removed; this is tried again: {Reason}")]
    public static partial void CopiesNotTidied(ILogger log, string reason);

    [LoggerMessage(26, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} is removed: {Reason}")]
    public static partial void Removes(ILogger log, ShardId shard, NodeId fromNode, string reason);

    [LoggerMessage(29, LogLevel.Information, "Node {Node} is removed: it has no replica, and was told to leave before it stopped")]
    public static partial void Removed(ILogger log, NodeId node);
}
