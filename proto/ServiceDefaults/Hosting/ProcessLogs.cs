using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.ServiceDefaults.Telemetry;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Hosting;

/// <summary>Creates the programs' log: on standard output, one line for each message, as text or as JSON.</summary>
internal static class ProcessLogs
{
    /// <summary>
    /// Kestrel logs mistakes of its callers on HTTP/2 connections, each time and with levels up to critical. A caller that resets many calls would fill the
    /// log, and an operator cannot act on these messages. This also hides an error in Kestrel's own queue of a connection, which ends only that connection.
    /// </summary>
    private const string ConnectionsOfCallers = "Microsoft.AspNetCore.Server.Kestrel.Http2";

    /// <param name="settings">Has <see cref="CommonSettings.LogFormat"/> and <see cref="CommonSettings.LogLevel"/>.</param>
    /// <param name="exported">The service as which the logs are also exported by OTLP, if the environment asks for it; null if they are not.</param>
    public static ILoggerFactory Create(Settings settings, ExportedService? exported = null) => LoggerFactory.Create(logging =>
    {
        var level = Enum.Parse<LogLevel>(settings.Get(CommonSettings.LogLevel)!, ignoreCase: true);
        // Kestrel logs each connection and request at the lower levels.
        logging.SetMinimumLevel(level).AddFilter("Microsoft", level > LogLevel.Warning ? level : LogLevel.Warning);
        // A server that does not start throws, and that is printed as one line.
        logging.AddFilter("Microsoft.Extensions.Hosting.Internal.Host", LogLevel.None);
        MuteCallers(logging);
        if (exported is not null)
            TelemetryExport.AddLogs(logging, exported);
        if (settings.Get(CommonSettings.LogFormat) == "json")
        {
            logging.Services.AddSingleton(TimeProvider.System);
            logging.AddConsoleFormatter<JsonLines, Microsoft.Extensions.Logging.Console.ConsoleFormatterOptions>()
                .AddConsole(console => console.FormatterName = JsonLines.FormatName);
        }
        else
        {
            logging.AddSimpleConsole(console =>
            {
                console.SingleLine = true;
                console.UseUtcTimestamp = true;
                console.TimestampFormat = "yyyy-MM-ddTHH:mm:ss.fffZ ";
            });
        }
    });

    /// <summary>Omits messages with which callers could fill a log.</summary>
    public static void MuteCallers(ILoggingBuilder logging) => logging.AddFilter(ConnectionsOfCallers, LogLevel.None);
}
