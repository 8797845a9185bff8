using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Telemetry;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Logs;

/// <summary>What programs of ours log to: standard output, a line an entry, as people or as collectors read it.</summary>
internal static class ProcessLogs
{
    /// <summary>
    /// What Kestrel says of HTTP/2 connections, each time and as high as critical, is what their callers do wrong: whoever resets many calls would fill the log, and nothing of it is
    /// for an operator to act on. An error in Kestrel's own queue of a connection is hidden with it; that ends this connection alone.
    /// </summary>
    private const string ConnectionsOfCallers = "Microsoft.AspNetCore.Server.Kestrel.Http2";

    /// <param name="settings">With <see cref="CommonSettings.LogFormat"/>.</param>
    /// <param name="exported">As what the program's logs leave by OTLP besides, if the environment asks for it; null: they do not.</param>
    public static ILoggerFactory Create(Settings settings, ExportedService? exported = null) => LoggerFactory.Create(logging =>
    {
        logging.SetMinimumLevel(LogLevel.Information).AddFilter("Microsoft", LogLevel.Warning);
        // A server that does not start is an exception, and told as one line.
        logging.AddFilter("Microsoft.Extensions.Hosting.Internal.Host", LogLevel.None);
        MuteCallers(logging);
        if (exported is not null)
            TelemetryExport.AddLogs(logging, exported);
        if (settings.Get(CommonSettings.LogFormat) == "json")
        {
            logging.Services.AddSingleton(TimeProvider.System);
            logging.AddConsoleFormatter<JsonLines, Microsoft.Extensions.Logging.Console.ConsoleFormatterOptions>().AddConsole(console => console.FormatterName = JsonLines.FormatName);
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

    /// <summary>Leaves out what callers could fill a log with.</summary>
    public static void MuteCallers(ILoggingBuilder logging) => logging.AddFilter(ConnectionsOfCallers, LogLevel.None);
}
