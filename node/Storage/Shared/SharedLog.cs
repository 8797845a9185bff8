using Microsoft.Extensions.Logging;

namespace KvCluster.Storage.Shared;

/// <summary>Log messages of the shared journal.</summary>
internal static partial class SharedLog
{
    [LoggerMessage(Level = LogLevel.Information, Message = "The shared journal has no file {Index}, so shards write alone, or do so sooner: {Reason}")]
    public static partial void NoFile(ILogger log, int index, string reason);

    [LoggerMessage(Level = LogLevel.Warning, Message = "The shared journal takes no more records, and each shard syncs its own from here on: {Reason}")]
    public static partial void Closed(ILogger log, string reason);

    [LoggerMessage(Level = LogLevel.Error, Message = "The shared journal has failed, so the node must end; its next start recovers: {Reason}")]
    public static partial void Failed(ILogger log, string reason);
}
