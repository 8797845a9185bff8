using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Log messages about certificates, for operators.</summary>
internal static partial class SecurityLog
{
    [LoggerMessage(1, LogLevel.Information, "TLS with the certificate {Subject} in {File}, which ends at {End:u}")]
    public static partial void Uses(ILogger log, string subject, string file, DateTimeOffset end);

    [LoggerMessage(2, LogLevel.Warning, "The TLS files have changed and are not used, new connections go on with what they held before: {Reason}")]
    public static partial void NotUsed(ILogger log, string reason);

    [LoggerMessage(3, LogLevel.Warning, "The certificate in {File} ends at {End:u}, in {Hours} hours: replace the file before, it is read again by itself")]
    public static partial void EndsSoon(ILogger log, string file, DateTimeOffset end, long hours);

    [LoggerMessage(4, LogLevel.Error, "The certificate in {File} ended at {End:u}: no new connection is made until the file is replaced, which is read again by itself")]
    public static partial void Ended(ILogger log, string file, DateTimeOffset end);

    [LoggerMessage(5, LogLevel.Warning, "Refused a TLS connection from {Host}: {Reason}")]
    public static partial void Refused(ILogger log, string host, string reason);
}
