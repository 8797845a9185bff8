using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Log messages about certificates, for operators.</summary>
internal static partial class SecurityLog
{
    [LoggerMessage(1, LogLevel.Information, "TLS uses the certificate {Subject} in {File}, which expires at {End:u}")]
    public static partial void Uses(ILogger log, string subject, string file, DateTimeOffset end);

    [LoggerMessage(2, LogLevel.Warning, "The TLS files have changed but cannot be used, so new connections still use their previous contents: {Reason}")]
    public static partial void NotUsed(ILogger log, string reason);

    [LoggerMessage(
        3, LogLevel.Warning, "The certificate in {File} expires at {End:u}, in {Hours} hours. Replace the file before then; it is reloaded automatically")]
    public static partial void EndsSoon(ILogger log, string file, DateTimeOffset end, long hours);

    [LoggerMessage(
        4, LogLevel.Error,
        "The certificate in {File} expired at {End:u}. No new connection can be made until the file is replaced; it is then reloaded automatically")]
    public static partial void Ended(ILogger log, string file, DateTimeOffset end);

    [LoggerMessage(5, LogLevel.Warning, "Refused a TLS connection from {Host}: {Reason}")]
    public static partial void Refused(ILogger log, string host, string reason);
}
