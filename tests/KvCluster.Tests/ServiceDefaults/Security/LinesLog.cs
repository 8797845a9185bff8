using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Keeps log entries of a level and above, as lines "Warning: ...".</summary>
internal sealed class LinesLog(LogLevel least = LogLevel.Warning) : ILogger
{
    private readonly Lock _lock = new();
    private readonly List<string> _lines = [];

    public string[] Lines
    {
        get
        {
            lock (_lock)
                return [.. _lines];
        }
    }

    public IDisposable? BeginScope<TState>(TState state)
        where TState : notnull => null;

    public bool IsEnabled(LogLevel logLevel) => logLevel >= least;

    public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter)
    {
        if (!IsEnabled(logLevel))
            return;
        lock (_lock)
            _lines.Add($"{logLevel}: {formatter(state, exception)}");
    }
}
