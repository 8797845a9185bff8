using System.Globalization;
using Microsoft.Extensions.Logging;

namespace KvCluster.Local;

/// <summary>
/// The log of everything that runs in the launcher's own process, so that the terminal shows only the first screen. One line per event in
/// <c>run/cluster.log</c>, which starts anew with each run. Any thread may log. A full disk ends the log, not the cluster.
/// </summary>
internal sealed class LogFile(string path) : ILoggerProvider
{
    private readonly Lock _lock = new();
    private readonly LogLines _file = new(path);
    private bool _ended;

    public ILogger CreateLogger(string categoryName) => new Logger(this, categoryName[(categoryName.LastIndexOf('.') + 1)..]);

    public void Dispose()
    {
        lock (_lock)
        {
            _ended = true;
            _file.Dispose();
        }
    }

    private void Write(string line)
    {
        lock (_lock)
        {
            if (_ended)
                return;
            try
            {
                _file.Add(line);
            }
            catch (IOException e)
            {
                _ended = true;
                Console.Error.WriteLine($"kv-local: {path} cannot be written, so nothing more is logged: {e.Message}");
            }
        }
    }

    private sealed class Logger(LogFile file, string category) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => logLevel >= LogLevel.Information;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
        {
            if (IsEnabled(logLevel))
                file.Write(string.Create(CultureInfo.InvariantCulture, $"{DateTimeOffset.UtcNow:yyyy-MM-dd HH:mm:ss.fff} {logLevel} {category}: {formatter(state, exception)}{(exception is null ? "" : $" | {exception}")}"));
        }
    }
}
