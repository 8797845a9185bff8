using System.Globalization;
using Microsoft.Extensions.Logging;

namespace KvCluster.Local;

/// <summary>
/// The log of everything that runs in the launcher's own process, so that the terminal shows only the first screen. One line per event in
/// <c>run/cluster.log</c>, which starts anew with each run. Any thread may log.
/// </summary>
internal sealed class LogFile(string path) : ILoggerProvider
{
    private readonly LogLines _file = new(path);

    public ILogger CreateLogger(string categoryName) => new Logger(_file, categoryName[(categoryName.LastIndexOf('.') + 1)..]);

    public void Dispose() => _file.Dispose();

    private sealed class Logger(LogLines file, string category) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => logLevel >= LogLevel.Information;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            if (IsEnabled(logLevel))
                file.Add(string.Create(CultureInfo.InvariantCulture, $"{DateTimeOffset.UtcNow:yyyy-MM-dd HH:mm:ss.fff} {logLevel} {category}: "
                    + $"{formatter(state, exception)}{(exception is null ? "" : $" | {exception}")}"));
        }
    }
}
