using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Telemetry;

/// <summary>The library's log messages, about what its callers are not told otherwise.</summary>
internal static partial class ClientLog
{
    [LoggerMessage(Level = LogLevel.Error, Message = "An unexpected exception ended {Loop} at {Address}. Waiting calls were answered with an error, and it is "
        + "restarted. This is a bug; please report it.")]
    public static partial void Unexpected(ILogger log, string loop, string address, Exception failure);

    [LoggerMessage(
        Level = LogLevel.Error, Message = "{Address} is not used: {Foreign}. All endpoints of a client must belong to one cluster; correct its options.")]
    public static partial void ForeignCluster(ILogger log, string address, string foreign);
}
