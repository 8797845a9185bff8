using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>The log messages of the caches, about what their callers are not told.</summary>
internal static partial class CacheLog
{
    /// <summary>The category of the log.</summary>
    public const string Category = "KvCluster.Extensions.Caching";

    [LoggerMessage(
        Level = LogLevel.Warning,
        Message = "{Count} calls went on without the {Cache} since the last line like this. The last one: {Why} What was to be read counts as not found, and "
            + "what was to be set may not be.")]
    public static partial void WentWithout(ILogger log, string cache, long count, string why, Exception? failure);

    [LoggerMessage(
        Level = LogLevel.Warning,
        Message = "A watch of the hybrid cache has ended ({Reason}), and begins anew in a second. Until it has begun, entries are read from the cluster.")]
    public static partial void WatchEnded(ILogger log, string reason, Exception failure);
}
