using System.Net;
using Microsoft.Extensions.Logging;

namespace KvCluster.AdminConsole;

/// <summary>The console's log messages: changes made through it, and wrong tokens.</summary>
internal static partial class ConsoleLog
{
    [LoggerMessage(1, LogLevel.Information, "The console executed {Call}, requested by {Caller}")]
    public static partial void Changed(ILogger log, string call, IPAddress? caller);

    [LoggerMessage(2, LogLevel.Warning, "A request to the console from {Caller} had a wrong token")]
    public static partial void TokenRefused(ILogger log, string caller);

    [LoggerMessage(3, LogLevel.Error, "The console accepts no changes: {Reason}")]
    public static partial void TokenUnusable(ILogger log, string reason);
}
