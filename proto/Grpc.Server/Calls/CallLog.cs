using Microsoft.Extensions.Logging;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>Log messages of calls.</summary>
internal static partial class CallLog
{
    [LoggerMessage(LogLevel.Error, "The handler of {Method} failed.")]
    public static partial void HandlerFailed(ILogger log, string method, Exception failure);

    [LoggerMessage(LogLevel.Debug, "The caller went away while responses were sent.")]
    public static partial void FlushFailed(ILogger log, Exception failure);
}
