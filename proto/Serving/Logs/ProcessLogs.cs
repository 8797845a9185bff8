using KvCluster.Serving.Configuration;
using KvCluster.Serving.Telemetry;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Logging;

namespace KvCluster.Serving.Logs;

/// <summary>What programs of ours log to: standard output, a line an entry, as people or as collectors read it.</summary>
internal static class ProcessLogs
{
    /// <param name="settings">With <see cref="CommonSettings.LogFormat"/>.</param>
    /// <param name="exported">As what the program's logs leave by OTLP besides, if the environment asks for it; null: they do not.</param>
    public static ILoggerFactory Create(Settings settings, ExportedService? exported = null) => LoggerFactory.Create(logging =>
    {
        logging.SetMinimumLevel(LogLevel.Information).AddFilter("Microsoft", LogLevel.Warning);
        // A server that does not start is an exception, and told as one line.
        logging.AddFilter("Microsoft.Extensions.Hosting.Internal.Host", LogLevel.None);
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
}
