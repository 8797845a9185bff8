using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Transport;

/// <summary>Log messages about the streams between nodes.</summary>
internal static partial class TransportLog
{
    [LoggerMessage(1, LogLevel.Information, "Connected to node {Node}: {How}")]
    public static partial void Connected(ILogger log, NodeId node, string how);

    [LoggerMessage(2, LogLevel.Warning, "Not connected to node {Node} at {Address}: {Reason}")]
    public static partial void NotConnected(ILogger log, NodeId node, string address, string reason);

    [LoggerMessage(3, LogLevel.Error, "{What} failed with an unexpected exception and continues")]
    public static partial void LoopFailed(ILogger log, string what, Exception failure);
}
