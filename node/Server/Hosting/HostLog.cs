using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>What a node says of itself: one line a decision.</summary>
internal static partial class HostLog
{
    [LoggerMessage(1, LogLevel.Information, "Node {Node} of cluster {Cluster} serves at {Address}, start {Starts}")]
    public static partial void Serves(ILogger log, uint node, string cluster, string address, ulong starts);

    [LoggerMessage(2, LogLevel.Warning, "The shard map is listed again: {Reason}")]
    public static partial void DirectoryListsAgain(ILogger log, string reason);

    [LoggerMessage(3, LogLevel.Information, "Shard {Shard}: replica {Replica:x16} {Action}")]
    public static partial void ReplicaOpened(ILogger log, uint shard, ulong replica, string action);

    [LoggerMessage(4, LogLevel.Error, "Shard {Shard}: replica {Replica:x16} does not work: {Reason}")]
    public static partial void ReplicaFailed(ILogger log, uint shard, ulong replica, string reason, Exception? failure);

    [LoggerMessage(27, LogLevel.Warning, "Shard {Shard}: replica {Replica:x16} waits for room on its disk, and is opened when there is some: {Reason}")]
    public static partial void ReplicaWaitsForRoom(ILogger log, uint shard, ulong replica, string reason);

    [LoggerMessage(5, LogLevel.Warning, "The node's record could not be renewed: {Reason}")]
    public static partial void RegistrationFailed(ILogger log, string reason);

    [LoggerMessage(6, LogLevel.Information, "Waiting for {What} of cluster {Cluster}: {Reason}")]
    public static partial void WaitsForCluster(ILogger log, string what, string cluster, string reason);

    [LoggerMessage(7, LogLevel.Information, "Node {Node} stopped")]
    public static partial void Stopped(ILogger log, uint node);

    [LoggerMessage(8, LogLevel.Warning, "Node {Node} did not stop everything in time: {What}")]
    public static partial void StopTookTooLong(ILogger log, uint node, string what);

    [LoggerMessage(9, LogLevel.Warning, "Shard {Shard}: its record could not be read: {Reason}")]
    public static partial void RecordNotRead(ILogger log, uint shard, string reason);

    [LoggerMessage(10, LogLevel.Information, "Node {Node} drains: it gives its leaderships away")]
    public static partial void Drains(ILogger log, uint node);

    [LoggerMessage(11, LogLevel.Information, "Node {Node} gave {GivenAway} leaderships away, {Kept} could not be")]
    public static partial void Drained(ILogger log, uint node, int givenAway, int kept);

    [LoggerMessage(12, LogLevel.Information, "Shard {Shard}: replica {Replica:x16} was removed, its folder {Action}")]
    public static partial void ReplicaRetired(ILogger log, uint shard, ulong replica, string action);

    [LoggerMessage(13, LogLevel.Information, "Shard {Shard}: replica on node {Node} is replaced: {Step}")]
    public static partial void Replaces(ILogger log, uint shard, uint node, string step);

    [LoggerMessage(14, LogLevel.Warning, "Shard {Shard}: the replica here is lost and not replaced yet: {Reason}")]
    public static partial void NotReplaced(ILogger log, uint shard, string reason);

    [LoggerMessage(15, LogLevel.Error, "A change of the shards' records could not be followed; trying again")]
    public static partial void FollowingFailed(ILogger log, Exception failure);

    [LoggerMessage(16, LogLevel.Information, "Created cluster {Cluster}: {Shards} shards of {Replicas} replicas on {Nodes} nodes")]
    public static partial void CreatedCluster(ILogger log, string cluster, int shards, int replicas, int nodes);

    [LoggerMessage(17, LogLevel.Information, "Node {Node} moves replicas from here on, where they are to be moved")]
    public static partial void Controls(ILogger log, uint node);

    [LoggerMessage(18, LogLevel.Information, "Shard {Shard}: its replica moves from node {FromNode} to node {ToNode}: {Reason}")]
    public static partial void Moves(ILogger log, uint shard, uint fromNode, uint toNode, string reason);

    [LoggerMessage(19, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} moved to node {ToNode}")]
    public static partial void Moved(ILogger log, uint shard, uint fromNode, uint toNode);

    [LoggerMessage(20, LogLevel.Warning, "Replicas are not moved: {Reason}")]
    public static partial void NotMoved(ILogger log, string reason);

    [LoggerMessage(21, LogLevel.Error, "A turn of {Loop} failed; the next one comes")]
    public static partial void TurnFailed(ILogger log, string loop, Exception failure);

    [LoggerMessage(22, LogLevel.Information, "Shard {Shard}: no checkpoint before the stop, the next start replays more of its journal: {Reason}")]
    public static partial void NotCovered(ILogger log, uint shard, string reason);

    [LoggerMessage(23, LogLevel.Warning, "The folder '{Path}' is an old copy (started {Starts} times, the coordinator counted {Counted}): its {Shards} replicas are set aside in '{Aside}', and new ones come from the other nodes")]
    public static partial void SetAsideOldCopy(ILogger log, string path, ulong starts, ulong counted, int shards, string aside);

    [LoggerMessage(24, LogLevel.Warning, "Shard {Shard}: whether its record was changed is not known: {Reason}")]
    public static partial void RecordNotSet(ILogger log, uint shard, string reason);

    [LoggerMessage(25, LogLevel.Information, "Shard {Shard}: gets a replica on node {ToNode}: {Reason}")]
    public static partial void Adds(ILogger log, uint shard, uint toNode, string reason);

    [LoggerMessage(40, LogLevel.Error, "Shard {Shard}: replica {Replica:x16} stays, although the record that was read does not name it: {Reason}. The coordinator may have been restored from an old copy; repair the record")]
    public static partial void ReplicaNotRetired(ILogger log, uint shard, ulong replica, string reason);

    [LoggerMessage(41, LogLevel.Information, "The retired replica {Name} is deleted: its space is needed")]
    public static partial void RetiredDeleted(ILogger log, string name);

    [LoggerMessage(42, LogLevel.Warning, "A retired replica could not be deleted, which is tried again: {Reason}")]
    public static partial void RetiredNotDeleted(ILogger log, string reason);

    [LoggerMessage(26, LogLevel.Information, "Shard {Shard}: its replica on node {FromNode} is removed: {Reason}")]
    public static partial void Removes(ILogger log, uint shard, uint fromNode, string reason);
}
