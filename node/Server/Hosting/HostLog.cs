using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>A node's log messages about its replicas, one line per decision.</summary>
internal static partial class HostLog
{
    [LoggerMessage(3, LogLevel.Information, "Shard {Shard}: replica {Replica:x16} {Action}")]
    public static partial void ReplicaOpened(ILogger log, ShardId shard, ReplicaId replica, string action);

    [LoggerMessage(4, LogLevel.Error, "Shard {Shard}: replica {Replica:x16} failed: {Reason}")]
    public static partial void ReplicaFailed(ILogger log, ShardId shard, ReplicaId replica, string reason, Exception? failure);

    [LoggerMessage(27, LogLevel.Warning, "Shard {Shard}: replica {Replica:x16} waits for space on its disk and is opened when there is some: {Reason}")]
    public static partial void ReplicaWaitsForRoom(ILogger log, ShardId shard, ReplicaId replica, string reason);

    [LoggerMessage(5, LogLevel.Warning, "The node's record could not be renewed: {Reason}")]
    public static partial void RegistrationFailed(ILogger log, string reason);

    [LoggerMessage(9, LogLevel.Warning, "Shard {Shard}: its record could not be read: {Reason}")]
    public static partial void RecordNotRead(ILogger log, ShardId shard, string reason);

    [LoggerMessage(43, LogLevel.Warning, "Shard {Shard}: a copy of its record could not be written, so the replica is not told of it yet: {Reason}")]
    public static partial void RecordNotKept(ILogger log, ShardId shard, string reason);

    [LoggerMessage(46, LogLevel.Warning, "The copy of the nodes' records could not be written: {Reason}")]
    public static partial void NodesNotKept(ILogger log, string reason);

    [LoggerMessage(12, LogLevel.Information, "Shard {Shard}: replica {Replica:x16} was removed; its directory is {Action}")]
    public static partial void ReplicaRetired(ILogger log, ShardId shard, ReplicaId replica, string action);

    [LoggerMessage(15, LogLevel.Error, "A change of the shards' records could not be applied; trying again")]
    public static partial void FollowingFailed(ILogger log, Exception failure);

    [LoggerMessage(22, LogLevel.Information, "Shard {Shard}: no checkpoint was taken before the stop; the next start replays more of its journal: {Reason}")]
    public static partial void NotCovered(ILogger log, ShardId shard, string reason);

    [LoggerMessage(23, LogLevel.Warning, "The directory '{Path}' is an old copy (its last is {Own}, but the coordinator counted {Counted}); "
        + "its {Shards} replicas are set aside in '{Aside}', and new ones come from the other nodes")]
    public static partial void SetAsideOldCopy(ILogger log, string path, string own, string counted, int shards, string aside);

    [LoggerMessage(24, LogLevel.Warning, "Shard {Shard}: it is unknown whether its record was changed: {Reason}")]
    public static partial void RecordNotSet(ILogger log, ShardId shard, string reason);

    [LoggerMessage(40, LogLevel.Error, "Shard {Shard}: replica {Replica:x16} is kept although the record that was read does not name it: {Reason}. "
        + "If the coordinator was restored from an old copy, raise its records: kv admin coordinator recover --plan")]
    public static partial void ReplicaNotRetired(ILogger log, ShardId shard, ReplicaId replica, string reason);

    [LoggerMessage(41, LogLevel.Information, "The retired replica {Name} is deleted because its space is needed")]
    public static partial void RetiredDeleted(ILogger log, string name);

    [LoggerMessage(69, LogLevel.Warning, "The data directory still says that it may have a shared journal, although it has none: {Reason}")]
    public static partial void NotDeclaredWhole(ILogger log, string reason);

    [LoggerMessage(42, LogLevel.Warning, "A retired replica could not be deleted; the deletion is tried again: {Reason}")]
    public static partial void RetiredNotDeleted(ILogger log, string reason);
}
