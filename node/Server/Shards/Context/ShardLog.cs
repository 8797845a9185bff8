using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Shards.Context;

/// <summary>Log messages of a replica, one line per decision.</summary>
internal static partial class ShardLog
{
    [LoggerMessage(1, LogLevel.Information, "shard {Shard}: {Text}")]
    public static partial void Decision(ILogger log, ShardId shard, string text);

    [LoggerMessage(2, LogLevel.Error, "shard {Shard}: ALARM: {Text}")]
    public static partial void Alarm(ILogger log, ShardId shard, string text);

    [LoggerMessage(3, LogLevel.Critical, "shard {Shard}: this replica stopped and needs attention; the other replicas continue")]
    public static partial void Stopped(ILogger log, ShardId shard, Exception reason);
}
