using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Telemetry;

/// <summary>The library's log messages, about what its callers are not told otherwise.</summary>
internal static partial class ClientLog
{
    [LoggerMessage(Level = LogLevel.Error, Message = "An exception that nobody expected ended {Loop} at {Address}. Calls that waited for it are answered, and it begins anew. This is a bug: please report it.")]
    public static partial void Unexpected(ILogger log, string loop, string address, Exception failure);

    [LoggerMessage(Level = LogLevel.Error, Message = "{Address} is left out: {Foreign}. Endpoints of one client are of one cluster; mend its options.")]
    public static partial void ForeignCluster(ILogger log, string address, string foreign);
}
