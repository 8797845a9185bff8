using KvCluster.V1;
using Microsoft.Extensions.Logging;

namespace KvCluster.Router;

/// <summary>The router's log messages for operators.</summary>
internal static partial class RouterLog
{
    [LoggerMessage(1, LogLevel.Information, "Router serves at {Address}")]
    public static partial void Serves(ILogger log, string address);

    [LoggerMessage(2, LogLevel.Warning, "Calls are waiting: {Reason}")]
    public static partial void Waits(ILogger log, string reason);

    [LoggerMessage(3, LogLevel.Information, "The shard map of cluster {Cluster} is known")]
    public static partial void Knows(ILogger log, string cluster);

    [LoggerMessage(4, LogLevel.Error, "A call of {Method} whose caller had gone ended with an unexpected exception")]
    public static partial void Unexpected(ILogger log, Method method, Exception failure);

    [LoggerMessage(5, LogLevel.Information, "The first calls, which the router makes to itself, failed, so the first ones of callers take longer: {Reason}")]
    public static partial void FirstCallsFailed(ILogger log, string reason);

    [LoggerMessage(6, LogLevel.Error, "A call of {Method} ended with an unexpected exception")]
    public static partial void Failed(ILogger log, Method method, Exception failure);
}
